//! Unmodified third-party clients, run in Node and Python, against the application; the recipes of `docs/clients.md`.

use std::fs;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::AsyncWriteExt;
use tokio::process::Command;

use crate::support::control::ControlledVendor;
use crate::support::packages::{
    INSPECTOR, keep_bytecode, node_path, npm_folder, python_path, recipes, run_program,
};
use crate::support::server::{self, Server, session_token};

/// Origin of the page in which the widgets run.
const PAGE_ORIGIN: &str = "http://shop.example";

/// Time limit of a test in Node, far above its duration on a busy machine, so that one that hangs is named.
const TIMEOUT_ARGUMENT: &str = "--test-timeout=600000";

/// The application with the agents of the clients, and the vendor behind it.
struct ClientApp {
    app: Server,
    vendor: ControlledVendor,
    session: String,
}

impl ClientApp {
    async fn start() -> Self {
        let vendor = ControlledVendor::start().await;
        let app = server::app(&workspace(&vendor.base_url()), &[]).await;
        Self { app, vendor, session: session_token("u1", "c1") }
    }

    /// Creates a token of an agent and returns its text.
    async fn create_token(&self, agent: &str, token: &Value) -> String {
        let request = self.app.request("POST", &format!("/api/agents/{agent}/tokens"));
        let response = request.bearer_auth(&self.session).json(token).send().await.expect("an answer");
        let created: Value = response.json().await.expect("JSON");
        created["token"].as_str().unwrap_or_else(|| panic!("no token in {created}")).to_owned()
    }

    async fn create_widget_token(&self, agent: &str) -> String {
        self.create_token(agent, &json!({"kind": "widget", "origins": [PAGE_ORIGIN]})).await
    }

    /// Sets the variables with API tokens, one of which has a cap.
    async fn set_api_tokens(&self, program: &mut Command, runs_per_minute: u32) {
        let all = json!({"kind": "api", "agents": ["text", "tools", "error", "slow", "paint"]});
        let limited = json!({"kind": "api", "caps": {"runsPerMinute": runs_per_minute}});
        program
            .env("API_TOKEN", self.create_token("guide", &all).await)
            .env("LIMITED_API_TOKEN", self.create_token("text", &limited).await);
    }

    /// Sets the variables that the recipes read.
    async fn set_variables(&self, program: &mut Command) {
        let mcp_token = self.create_token("guide", &json!({"kind": "mcp", "todoListId": "garden"})).await;
        program
            .env("AGENTD_URL", self.app.url(""))
            .env("AGENTD_TOKEN", &self.session)
            .env("MCP_TOKEN", mcp_token);
    }

    /// Runs a Python script with the recipes in its path, and returns what it prints.
    async fn run_python(&self, environment: &str, script: &Path) -> String {
        let mut python = self.python(environment, script).await;
        run_program(&mut python).await
    }

    /// Returns the command of a Python script with the recipes in its path.
    async fn python(&self, environment: &str, script: &Path) -> Command {
        let mut python = Command::new(python_path(environment));
        keep_bytecode(&mut python).arg(script).env("PYTHONPATH", recipes());
        self.set_variables(&mut python).await;
        python
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_supported_clients_work() {
    let clients = ClientApp::start().await;
    let mut tests = Command::new(node_path());
    tests
        .args(["--import", "./recipes.js", "--test", "--test-reporter=tap", TIMEOUT_ARGUMENT])
        .current_dir(npm_folder("clients"))
        .env("BASE_URL", clients.app.url(""))
        .env("TOKEN", &clients.session)
        .env("VENDOR_CONTROL_URL", clients.vendor.control_url())
        .env("TODO_LIST", "l1")
        .env("WIDGET_TOKEN_GUIDE", clients.create_widget_token("guide").await)
        .env("WIDGET_TOKEN_ERROR", clients.create_widget_token("error").await)
        .env("COPILOTKIT_TELEMETRY_DISABLED", "true");
    clients.set_variables(&mut tests).await;
    clients.set_api_tokens(&mut tests, 20).await;
    let report = run_program(&mut tests).await;
    let count = |name: &str| {
        let line = report.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_default();
        line.trim().parse::<usize>().unwrap_or_else(|_| panic!("no {name:?} in {report}"))
    };
    assert!(count("# pass ") >= 52, "tests are missing: {report}");
    assert_eq!(count("# skipped "), 0, "{report}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_mcp_sdk_for_python_lists_and_calls() {
    let clients = ClientApp::start().await;
    let output = clients.run_python("mcp", &recipes().join("mcp_client.py")).await;
    assert_eq!(output, "['createTodo', 'readTodos']\nRepot the basil\n");
}

/// Runs an agent in Python with a fake model, which calls `readTodos` and then answers.
async fn check_python_agent(environment: &str, script: &str) {
    let clients = ClientApp::start().await;
    let scripts = Path::new(env!("CARGO_MANIFEST_DIR")).join("clients/python");
    let output = clients.run_python(environment, &scripts.join(script)).await;
    let run: Value = serde_json::from_str(&output).unwrap_or_else(|_| panic!("{output}"));
    assert_eq!(run["tools"], json!(["createTodo", "readTodos"]));
    assert_eq!(run["result"]["todos"][0]["title"], "Water the basil");
    assert_eq!(run["answer"], "Water the basil.");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pydantic_ai_uses_the_tools() {
    check_python_agent("mcp", "pydantic_recipe.py").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn langchain_uses_the_tools() {
    check_python_agent("langchain", "langchain_recipe.py").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_openai_package_for_python_works() {
    let clients = ClientApp::start().await;
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("clients/python/openai_client.py");
    let mut python = clients.python("openai", &script).await;
    clients.set_api_tokens(&mut python, 1).await;
    let output = run_program(&mut python).await;
    let printed_json: Value = serde_json::from_str(&output).unwrap_or_else(|_| panic!("{output}"));
    let expected = json!({
        "models": ["guide", "text", "tools", "error", "slow", "paint"], "model": "text",
        "text": "Hello from the model.", "usage": 11, "id": true,
        "stream": ["Hello from the model.", 11, null],
        "broken": ["Half an", null, "backend_failed"],
        "paint": ["tool_calls", "paint", {"color": "red"}, "It is red."],
        "errors": [
            ["AuthenticationError", 401, "invalid_api_key"],
            ["NotFoundError", 404, "model_not_found"],
            ["BadRequestError", 400, "unsupported_parameter"],
            ["InternalServerError", 502, "backend_failed"],
            null,
            ["RateLimitError", 429, "rate_limit_exceeded"],
        ],
    });
    assert_eq!(printed_json, expected);
}

/// Runs the chat program `llm`, whose settings are in a folder, with lines of input; returns its output if it succeeds, and
/// else its errors.
async fn run_llm(folder: &Path, arguments: &[&str], input: &str) -> Result<String, String> {
    let mut llm = Command::new(python_path("openai").with_file_name("llm"));
    keep_bytecode(&mut llm).args(arguments).env("LLM_USER_PATH", folder).kill_on_drop(true);
    llm.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut running = llm.spawn().expect("the program starts");
    let mut stdin = running.stdin.take().expect("an input");
    stdin.write_all(input.as_bytes()).await.expect("it reads");
    drop(stdin);
    let output = tokio::time::timeout(Duration::from_secs(120), running.wait_with_output()).await;
    let output = output.expect("it ends").expect("it runs");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    if output.status.success() { Ok(text(&output.stdout)) } else { Err(text(&output.stderr)) }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_chat_program_has_agents_as_models() {
    let clients = ClientApp::start().await;
    let token = json!({"kind": "api", "agents": ["text", "error"]});
    let token = clients.create_token("guide", &token).await;
    let folder = tempfile::tempdir().expect("a folder");
    let base = clients.app.url("/v1");
    let models = ["text", "error", "absent"].map(|agent| {
        format!(
            "- model_id: our-{agent}\n  model_name: {agent}\n  api_base: {base}\n  api_key_name: agents\n"
        )
    });
    std::fs::write(folder.path().join("extra-openai-models.yaml"), models.concat()).expect("written");
    let keys = json!({ "agents": token }).to_string();
    std::fs::write(folder.path().join("keys.json"), keys).expect("written");
    let output = run_llm(folder.path(), &["-m", "our-text", "Hello"], "").await;
    assert_eq!(output.as_deref().map(str::trim), Ok("Hello from the model."));
    let unstreamed_output = run_llm(folder.path(), &["-m", "our-text", "--no-stream", "Hello"], "").await;
    assert_eq!(unstreamed_output.as_deref().map(str::trim), Ok("Hello from the model."));
    let chat = run_llm(folder.path(), &["chat", "-m", "our-text"], "Hello\nAnd then?\nexit\n").await;
    let chat = chat.expect("a conversation");
    assert_eq!(chat.matches("Hello from the model.").count(), 2, "{chat}");
    let absent = run_llm(folder.path(), &["-m", "our-absent", "Hello"], "").await.expect_err("no such agent");
    assert!(absent.contains("the model does not exist"), "{absent}");
    let broken = run_llm(folder.path(), &["-m", "our-error", "Hello"], "").await;
    assert!(broken.is_err(), "{broken:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_documented_inspector_commands_work() {
    let clients = ClientApp::start().await;
    let folder = tempfile::tempdir().expect("a folder");
    install_npx(folder.path());
    let mut shell = Command::new("sh");
    let path = std::env::var("PATH").unwrap_or_default();
    shell
        .args(["-e".as_ref(), recipes().join("mcp-inspector.sh").as_os_str()])
        .env("PATH", format!("{}:{path}", folder.path().display()))
        .env("HOME", folder.path());
    clients.set_variables(&mut shell).await;
    let output = run_program(&mut shell).await;
    let mut answers = serde_json::Deserializer::from_str(&output).into_iter::<Value>();
    let listed = answers.next().expect("a list").expect("JSON");
    assert_eq!(listed["tools"][0]["name"], "createTodo", "{listed}");
    let called = answers.next().expect("a result").expect("JSON");
    assert_eq!(called["structuredContent"]["todo"]["title"], "Repot the basil", "{called}");
}

/// Creates a program `npx` that runs the installed inspector, whose package is its first argument.
fn install_npx(folder: &Path) {
    use std::os::unix::fs::PermissionsExt;
    let inspector = npm_folder("conformance").join(INSPECTOR);
    let script =
        format!("#!/bin/sh\nshift\nexec '{}' '{}' \"$@\"\n", node_path().display(), inspector.display());
    let npx = folder.join("npx");
    fs::write(&npx, script).expect("it is written");
    fs::set_permissions(&npx, fs::Permissions::from_mode(0o755)).expect("the file is executable");
}

#[test]
fn the_page_quotes_the_recipes() {
    let page = include_str!("../docs/clients.md");
    let mut quoted: Vec<(&str, &str)> =
        page.split("```").skip(1).step_by(2).filter_map(|block| block.split_once('\n')).collect();
    // Commands that prepare something; all other blocks are recipes.
    quoted.retain(|(language, _)| *language != "console");
    let mut files = 0;
    for file in fs::read_dir(recipes()).expect("the folder is there") {
        let path = file.expect("a file").path();
        let recipe = fs::read_to_string(&path).expect("text");
        let name = path.file_name().and_then(|name| name.to_str()).expect("a name");
        let position = quoted.iter().position(|(_, block)| *block == recipe);
        quoted.remove(position.unwrap_or_else(|| panic!("docs/clients.md does not quote {name}:\n{recipe}")));
        assert!(page.contains(&format!("(../examples/clients/{name})")), "docs/clients.md links {name}");
        files += 1;
    }
    assert!(files >= 12, "recipes are missing");
    assert_eq!(quoted, [], "docs/clients.md shows code that is no file of examples/clients");
}

fn workspace(base_url: &str) -> Value {
    let models = ["text", "tools", "error", "slow", "paint", "order"]
        .map(|id| (id, id))
        .into_iter()
        .chain([("guide", "tools"), ("guarded", "tools")]);
    let agents: Vec<Value> = models
        .map(|(id, model)| {
            let mut agent = json!({
                "id": id, "name": id, "ownerId": "u1", "companyId": "c1",
                "content": {"systemPrompt": "Be brief.", "mcpPreset": ["createTodo", "readTodos"],
                    "widgetTools": ["readTodos"]},
                "children": [{"name": "EmbeddedAI", "content":
                    {"provider": "openai", "model": model, "baseUrl": base_url, "apiKey": "key"}}]
            });
            if ["guarded", "order"].contains(&id) {
                agent["content"]["approvals"] = json!([{"tools": ["createTodo", "readTodos"]}]);
            }
            agent
        })
        .collect();
    let lists = ["l1", "garden", "orders"].map(|id| {
        json!({"id": id, "ownerId": "u1", "companyId": "c1", "name": "Mine",
            "todos": [{"id": "t1", "title": "Water the basil", "done": false}]})
    });
    json!({"users": [{"id": "u1", "companyId": "c1"}], "agents": agents, "todoLists": lists})
}
