//! Child processes: start, processor time and resident memory as the kernel counts them, kill on drop.

use std::{
    collections::BTreeMap,
    env, fs,
    io::{BufRead, BufReader},
    net::SocketAddr,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail, ensure};

/// How long a child may take until it answers.
const START: Duration = Duration::from_secs(20);
/// `/proc/PID/stat` counts in ticks of this length on every Linux architecture.
const TICK: Duration = Duration::from_millis(10);

/// The `agentd` to measure: the one that is given, or one that is built in release beside this program, with these
/// arguments more. Cargo has let go of its lock by the time it runs a benchmark.
///
/// # Errors
/// None is there, or it does not build.
pub fn agentd(given: Option<PathBuf>, arguments: &[&str]) -> Result<PathBuf> {
    if let Some(path) = given {
        return path.canonicalize().with_context(|| format!("no agentd at {}", path.display()));
    }
    let program = env::current_exe()?;
    let target = program.ancestors().nth(3).context("a benchmark runs from target/release/deps")?;
    let cargo = env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let built = Command::new(cargo)
        .args(["build", "--release", "-p", "agentd", "--target-dir"])
        .arg(target)
        .args(arguments)
        .current_dir(Path::new(env!("CARGO_MANIFEST_DIR")))
        .status()?;
    ensure!(built.success(), "agentd does not build");
    Ok(target.join("release/agentd"))
}

/// A child process. Dropping it kills it.
#[derive(Debug)]
pub struct Process {
    child: Child,
    log: PathBuf,
}

impl Process {
    /// Starts `command` with its standard error in a file below `scratch`.
    ///
    /// # Errors
    /// The program or the file cannot be opened.
    pub fn start(mut command: Command, scratch: &Path) -> Result<Self> {
        let (file, log) = tempfile::Builder::new().suffix(".log").tempfile_in(scratch)?.keep()?;
        command.stdin(Stdio::null()).stderr(file);
        let child = command.spawn().with_context(|| format!("cannot start {:?}", command.get_program()))?;
        Ok(Self { child, log })
    }

    /// Starts a program that writes its address as the first line of its standard output.
    ///
    /// # Errors
    /// It does not start, or writes something else.
    pub fn start_announced(mut command: Command, scratch: &Path) -> Result<(Self, SocketAddr)> {
        command.stdout(Stdio::piped());
        let mut process = Self::start(command, scratch)?;
        let stdout = process.child.stdout.take().context("standard output was piped")?;
        let mut line = String::new();
        BufReader::new(stdout).read_line(&mut line)?;
        let address = line.trim().parse().with_context(|| process.say("announced no address"))?;
        Ok((process, address))
    }

    /// Waits until `ready` holds.
    ///
    /// # Errors
    /// The process ended, or was not ready in time; with the end of its log.
    pub fn wait_until(&mut self, ready: impl Fn() -> bool) -> Result<()> {
        let since = Instant::now();
        while !ready() {
            if let Some(status) = self.child.try_wait()? {
                bail!(self.say(&format!("ended at its start, {status}")));
            }
            if since.elapsed() > START {
                bail!(self.say("did not get ready"));
            }
            thread::sleep(Duration::from_millis(10));
        }
        Ok(())
    }

    /// `what` with the end of the process's log.
    fn say(&self, what: &str) -> String {
        let log = fs::read(&self.log).unwrap_or_default();
        let end = &log[log.len().saturating_sub(2000)..];
        format!("the process {what}; its log ends:\n{}", String::from_utf8_lossy(end))
    }

    /// The kernel's name for the process.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Either fails only where the process has ended already, which is what is wanted.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The processor time that some processes have used up to a moment.
#[derive(Debug)]
pub struct CpuTime {
    /// Per thread, to the nanosecond.
    threads: BTreeMap<(u32, u32), Duration>,
    /// With the threads that have ended, to the tick.
    coarse: Duration,
}

impl CpuTime {
    /// Reads the clock of `processes`, once it has stopped: an answer's last byte is out before all work for it is done.
    ///
    /// # Errors
    /// A process has ended.
    pub fn settled(processes: &[Process]) -> Result<Self> {
        let mut before = Self::now(processes)?;
        for _ in 0..40 {
            thread::sleep(Duration::from_millis(5));
            let now = Self::now(processes)?;
            if now.since(&before) < Duration::from_micros(50) {
                return Ok(now);
            }
            before = now;
        }
        Ok(before)
    }

    fn now(processes: &[Process]) -> Result<Self> {
        let mut time = Self { threads: BTreeMap::new(), coarse: Duration::ZERO };
        for process in processes {
            time.read(process).with_context(|| process.say("has ended"))?;
        }
        Ok(time)
    }

    fn read(&mut self, process: &Process) -> Result<()> {
        let pid = process.pid();
        for entry in fs::read_dir(format!("/proc/{pid}/task"))? {
            let entry = entry?;
            // A thread may end between the listing and the reading; the coarse clock keeps its time.
            let Ok(text) = fs::read_to_string(entry.path().join("schedstat")) else { continue };
            let thread = entry.file_name().to_string_lossy().parse()?;
            let on_cpu = text.split_whitespace().next().context("empty schedstat")?.parse()?;
            self.threads.insert((pid, thread), Duration::from_nanos(on_cpu));
        }
        let stat = fs::read_to_string(format!("/proc/{pid}/stat"))?;
        // The program's name, in parentheses, may hold spaces; utime and stime are the 12th and 13th fields after it.
        let (_, fields) = stat.rsplit_once(')').context("stat without a name")?;
        for ticks in fields.split_whitespace().skip(11).take(2) {
            self.coarse += TICK * ticks.parse::<u32>()?;
        }
        Ok(())
    }

    /// The time used between `before` and this moment.
    pub fn since(&self, before: &Self) -> Duration {
        let fine = self.threads.iter().map(|(thread, time)| {
            time.saturating_sub(before.threads.get(thread).copied().unwrap_or_default())
        });
        // The coarse difference is off by up to two ticks a process; where it is larger than that allows, threads
        // that have ended had a share.
        let coarse = self.coarse.saturating_sub(before.coarse).saturating_sub(TICK * 5);
        fine.sum::<Duration>().max(coarse)
    }
}

/// The resident memory of `processes` together, in KiB.
///
/// # Errors
/// A process has ended.
pub fn resident_kib(processes: &[Process]) -> Result<u64> {
    let mut sum = 0;
    for process in processes {
        let status = fs::read_to_string(format!("/proc/{}/status", process.pid()))?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).context("no VmRSS")?;
        sum += line.trim().trim_end_matches(" kB").parse::<u64>()?;
    }
    Ok(sum)
}
