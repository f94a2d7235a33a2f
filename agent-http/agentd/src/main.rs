//! agentd
use agentd::dev::{self, DevOptions};

#[tokio::main]
async fn main() {
    let options = DevOptions { data: "/tmp/devdata".into(), port: 3000, workspace: None };
    if let Err(error) = dev::run(options).await {
        eprintln!("agentd: {error}");
        std::process::exit(1);
    }
}
