//! `import`, `export`, `backup`, `token`, `secrets` and `prompt`.

use std::path::Path;

use serde_json::{Value, json};

use super::{DATA_SECRET, TestDatabases, over_both, run, sqlite_url};

const NEW_SECRET: &str = "data-secret-canary-1";

fn workspace() -> Value {
    json!({
        "users": [{"id": "ada", "companyId": "acme"}],
        "agents": [{"id": "guide", "companyId": "acme", "ownerId": "ada",
            "content": {"messengerToken": "token-canary", "rules": ["Be brief."], "documentIds": ["d"]},
            "children": [{"name": "EmbeddedAI", "content":
                {"provider": "openai", "model": "m", "baseUrl": "https://v.example", "apiKey": "key-canary"}}]}],
        "documents": [{"id": "d", "companyId": "acme", "title": "D", "text": "Text."}],
        "todoLists": [{"id": "l", "ownerId": "ada", "companyId": "acme", "todos": [{"id": "1", "title": "one"}]}]
    })
}

/// A database with the environment of its commands.
struct Installation {
    url: String,
    file: String,
}

impl Installation {
    async fn create(databases: &TestDatabases, name: &str, workspace: &str) -> Self {
        let path = databases.path(&format!("{name}.json"));
        std::fs::write(&path, workspace).expect("written");
        let file = path.to_str().expect("text").to_owned();
        Self { url: databases.database(name).await, file }
    }

    fn env<'e>(&'e self, secret: &'e str) -> [(&'e str, &'e str); 2] {
        [("DATABASE_URL", &self.url), ("DATA_SECRET", secret)]
    }

    async fn run(&self, arguments: &[&str]) -> super::Output {
        run(arguments, &self.env(DATA_SECRET)).await
    }

    async fn import(&self) -> super::Output {
        self.run(&["import", &self.file]).await
    }

    async fn export(&self) -> String {
        self.run(&["export"]).await.success()
    }
}

#[tokio::test]
async fn a_workspace_is_imported_exported_and_backed_up() {
    over_both(async |databases| {
        let first = Installation::create(&databases, "first", &workspace().to_string()).await;
        // Commands on stored data do not create a database.
        let copy = databases.path("copy.db").to_str().expect("text").to_owned();
        let revoke = ["token", "revoke", "agw_x"];
        let prompt = ["prompt", "--agent", "guide"];
        for arguments in [&["export"][..], &["backup", &copy], &["secrets", "rotate"], &revoke, &prompt] {
            let error = first.run(arguments).await.failure();
            assert!(error.contains("DATABASE_URL"), "{arguments:?}: {error}");
        }
        let output = first.import().await.success();
        assert!(output.ends_with(": 4 created, 0 changed, 0 unchanged.\n"), "{output}");
        let output = first.import().await.success();
        assert!(output.ends_with(": 0 created, 0 changed, 4 unchanged.\n"), "{output}");
        let exported = first.export().await;
        assert!(exported.contains("Text.") && !exported.contains("canary"), "{exported}");
        let error = first.run(&["export", "--company", "none"]).await.failure();
        assert!(error.contains("no data of a company \"none\""), "{error}");

        let output = first.run(&["backup", &copy]).await.success();
        assert_eq!(output, format!("Wrote a consistent backup to {copy}.\n"));
        first.run(&["backup", &copy]).await.failure();
        let backup = Installation { url: sqlite_url(Path::new(&copy)), file: String::new() };
        assert_eq!(backup.export().await, exported);

        let wrong = workspace().to_string().replace("\"one\"", "\" \"");
        let second = Installation::create(&databases, "second", &wrong).await;
        let error = second.import().await.failure();
        assert!(error.contains("todoLists[0].todos[0].title: is blank"), "{error}");
    })
    .await;
}

#[tokio::test]
async fn tokens_are_created_listed_and_revoked() {
    over_both(async |databases| {
        let installation = Installation::create(&databases, "tokens", &workspace().to_string()).await;
        installation.import().await.success();
        let agent = ["--agent", "guide"];
        let mut ids = Vec::new();
        for (kind, more) in [("widget", &[][..]), ("mcp", &["--user", "ada"]), ("api", &["--user", "ada"])] {
            let arguments = [&["token", kind][..], &agent, more].concat();
            let output = installation.run(&arguments).await.success();
            assert_eq!(output.lines().count(), 2, "the last line is the token: {output}");
            let id = output.split_whitespace().nth(2).expect("an id").to_owned();
            ids.push(id);
        }
        let output = installation.run(&["token", "revoke", &ids[1]]).await.success();
        assert_eq!(output, format!("Token {} is revoked.\n", ids[1]));
        let listed = installation.run(&["token", "list", "--agent", "guide"]).await.success();
        let lines: Vec<Vec<&str>> = listed.lines().map(|line| line.split('\t').take(3).collect()).collect();
        let expected =
            [[&*ids[0], "widget", "valid"], [&*ids[1], "mcp", "revoked"], [&*ids[2], "api", "valid"]];
        assert_eq!(lines, expected);
        let error = installation.run(&["token", "list", "--agent", "none"]).await.failure();
        assert!(error.contains("there is no agent \"none\""), "{error}");
        let elsewhere = [&["token", "api", "--user", "ada", "--company", "zeta"][..], &agent].concat();
        let error = installation.run(&elsewhere).await.failure();
        assert!(error.contains("the company \"zeta\" has no agent \"guide\""), "{error}");
    })
    .await;
}

#[tokio::test]
async fn secrets_move_to_a_new_key() {
    over_both(async |databases| {
        let installation = Installation::create(&databases, "secrets", &workspace().to_string()).await;
        installation.import().await.success();
        let [database, new] = installation.env(NEW_SECRET);
        let rotate = ["secrets", "rotate"];
        // Both secrets of the agent are sealed under the old key.
        let lost = run(&rotate, &[database, new]).await;
        assert!(!lost.is_success && lost.stdout.contains("guide"), "{} {}", lost.stdout, lost.stderr);
        let previous = ("DATA_SECRET_PREVIOUS", DATA_SECRET);
        let output = run(&rotate, &[database, new, previous]).await.success();
        assert_eq!(output, "1 agents: 2 secrets re-encrypted, 0 already encrypted with DATA_SECRET.\n");
        let output = run(&rotate, &[database, new]).await.success();
        assert_eq!(output, "1 agents: 0 secrets re-encrypted, 2 already encrypted with DATA_SECRET.\n");
        let error = run(&rotate, &[database]).await.failure();
        assert!(error.contains("DATA_SECRET is not configured"), "{error}");
    })
    .await;
}

#[tokio::test]
async fn the_prompt_of_an_agent_is_shown() {
    over_both(async |databases| {
        let installation = Installation::create(&databases, "prompt", &workspace().to_string()).await;
        installation.import().await.success();
        let arguments = ["prompt", "--agent", "guide", "--message", "Hello?", "--json"];
        let shown = installation.run(&arguments).await.success();
        let preview: Value = serde_json::from_str(&shown).expect("JSON");
        assert_eq!(preview["executionContext"]["userId"], "ada");
        assert_eq!(preview["payload"]["model"], "m");
        assert!(
            shown.contains("Be brief.") && shown.contains("Text.") && !shown.contains("canary"),
            "{shown}"
        );
        let shown = installation.run(&arguments[..5]).await.success();
        assert!(shown.starts_with("Backend: embedded\n"), "{shown}");
        let exported = installation.export().await;
        installation.run(&arguments).await.success();
        assert_eq!(installation.export().await, exported, "a preview changes nothing");
    })
    .await;
}
