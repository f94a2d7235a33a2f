//! Child processes: start, CPU time and resident memory as counted by the kernel, kill on drop.

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

/// Time limit for a child to become ready.
const START_TIMEOUT: Duration = Duration::from_secs(20);
/// Length of the ticks that `/proc/PID/stat` counts in, on every Linux architecture.
const TICK: Duration = Duration::from_millis(10);

/// Returns the path of the `agentd` to measure: `configured`, or a release build in this program's target directory with
/// the additional cargo `arguments`. Cargo has released its lock by the time it runs a benchmark.
///
/// # Errors
/// The file does not exist, or the build failed.
pub fn agentd(configured: Option<PathBuf>, arguments: &[&str]) -> Result<PathBuf> {
    if let Some(path) = configured {
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

/// A child process, killed on drop.
#[derive(Debug)]
pub struct Process {
    child: Child,
    log: PathBuf,
}

impl Process {
    /// Starts `command` with its standard error redirected to a file below `scratch`.
    ///
    /// # Errors
    /// The program could not be started or the file not be created.
    pub fn start(mut command: Command, scratch: &Path) -> Result<Self> {
        let (file, log) = tempfile::Builder::new().suffix(".log").tempfile_in(scratch)?.keep()?;
        command.stdin(Stdio::null()).stderr(file);
        let child = command.spawn().with_context(|| format!("cannot start {:?}", command.get_program()))?;
        Ok(Self { child, log })
    }

    /// Starts a program that writes its address as the first line of its standard output.
    ///
    /// # Errors
    /// The program could not be started, or its first line is not an address.
    pub fn start_announced(mut command: Command, scratch: &Path) -> Result<(Self, SocketAddr)> {
        command.stdout(Stdio::piped());
        let mut process = Self::start(command, scratch)?;
        let stdout = process.child.stdout.take().context("standard output was piped")?;
        let mut line = String::new();
        BufReader::new(stdout).read_line(&mut line)?;
        let address = line.trim().parse().with_context(|| process.error_with_log("announced no address"))?;
        Ok((process, address))
    }

    /// Waits until `ready` returns true.
    ///
    /// # Errors
    /// The process exited, or was not ready in time; the message has the end of its log.
    pub fn wait_until(&mut self, ready: impl Fn() -> bool) -> Result<()> {
        let started = Instant::now();
        while !ready() {
            if let Some(status) = self.child.try_wait()? {
                bail!(self.error_with_log(&format!("ended at its start, {status}")));
            }
            if started.elapsed() > START_TIMEOUT {
                bail!(self.error_with_log("did not get ready"));
            }
            thread::sleep(Duration::from_millis(10));
        }
        Ok(())
    }

    /// Returns an error message with the end of the process's log.
    fn error_with_log(&self, failure: &str) -> String {
        let log = fs::read(&self.log).unwrap_or_default();
        let end = &log[log.len().saturating_sub(2000)..];
        format!("the process {failure}; its log ends:\n{}", String::from_utf8_lossy(end))
    }

    /// Returns the process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Both calls fail only if the process has already exited.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// CPU time used by a set of processes up to a point in time.
#[derive(Debug)]
pub struct CpuTime {
    /// Time per thread, in nanoseconds.
    threads: BTreeMap<(u32, u32), Duration>,
    /// Time including exited threads, in ticks.
    coarse: Duration,
}

impl CpuTime {
    /// Reads the CPU time of `processes` once it has stopped growing: a subject sends the last byte of a response
    /// before it has finished all work for it.
    ///
    /// # Errors
    /// A process has exited.
    pub fn when_idle(processes: &[Process]) -> Result<Self> {
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
            time.read(process).with_context(|| process.error_with_log("has ended"))?;
        }
        Ok(time)
    }

    fn read(&mut self, process: &Process) -> Result<()> {
        let pid = process.pid();
        for entry in fs::read_dir(format!("/proc/{pid}/task"))? {
            let entry = entry?;
            // A thread may exit between the listing and the read; the coarse clock still has its time.
            let Ok(text) = fs::read_to_string(entry.path().join("schedstat")) else { continue };
            let thread = entry.file_name().to_string_lossy().parse()?;
            let on_cpu = text.split_whitespace().next().context("empty schedstat")?.parse()?;
            self.threads.insert((pid, thread), Duration::from_nanos(on_cpu));
        }
        let stat = fs::read_to_string(format!("/proc/{pid}/stat"))?;
        // The program's name, in parentheses, may contain spaces; utime and stime are the 12th and 13th fields after
        // it.
        let (_, fields) = stat.rsplit_once(')').context("stat without a name")?;
        for ticks in fields.split_whitespace().skip(11).take(2) {
            self.coarse += TICK * ticks.parse::<u32>()?;
        }
        Ok(())
    }

    /// Returns the CPU time used since `before`.
    pub fn since(&self, before: &Self) -> Duration {
        let fine = self.threads.iter().map(|(thread, time)| {
            time.saturating_sub(before.threads.get(thread).copied().unwrap_or_default())
        });
        // The coarse difference is off by up to two ticks per process; a larger one means that exited threads used
        // CPU time.
        let coarse = self.coarse.saturating_sub(before.coarse).saturating_sub(TICK * 5);
        fine.sum::<Duration>().max(coarse)
    }
}

/// Returns the total resident memory of `processes`, in KiB.
///
/// # Errors
/// A process has exited.
pub fn resident_kib(processes: &[Process]) -> Result<u64> {
    let mut sum = 0;
    for process in processes {
        let status = fs::read_to_string(format!("/proc/{}/status", process.pid()))?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).context("no VmRSS")?;
        sum += line.trim().trim_end_matches(" kB").parse::<u64>()?;
    }
    Ok(sum)
}
