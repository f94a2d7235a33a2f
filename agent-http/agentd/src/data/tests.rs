use std::collections::BTreeMap;
use std::path::PathBuf;

use crate::config::Flags;
use agent_core::role::RoleSource as _;
use agent_core::secret::Secret;
use agent_platform::records::{Key, Precondition, RecordsExt};
use agent_platform::seal::Sealer;
use serde_json::json;
use tempfile::TempDir;

use super::*;

const FILE: &str = r#"{
  "users": [{"id": "ada", "companyId": "acme"}],
  "agents": [{"id": "guide", "companyId": "acme", "content": {"messengerToken": "token-canary"}}],
  "documents": [{"id": "d", "companyId": "acme", "title": "D", "text": "Text."}],
  "todoLists": [{"id": "l", "ownerId": "ada", "companyId": "acme", "todos": [{"id": "1", "title": "one"}]}]
}"#;

/// Test fixture: a folder with a workspace file, and the configuration of an application that stores its data
/// there.
struct ImportFixture {
    folder: TempDir,
    env: BTreeMap<&'static str, String>,
}

impl ImportFixture {
    fn new(file: &str) -> Self {
        let folder = TempDir::new().expect("a folder");
        std::fs::write(folder.path().join("workspace.json"), file).expect("written");
        // `data` does not exist; `import` has to create it.
        let database = format!("sqlite://{}", folder.path().join("data/app.db").display());
        let env = [("DATABASE_URL", database), ("DATA_SECRET", "data-secret-0000".to_owned())].into();
        Self { folder, env }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn config(&self) -> AppConfig {
        let env: BTreeMap<&str, &str> =
            self.env.iter().map(|(name, value)| (*name, value.as_str())).collect();
        AppConfig::load(&Flags::default(), &env).expect("the settings are right")
    }

    async fn import(&self) -> Result<String, String> {
        let (file, config) = (self.path("workspace.json"), self.config());
        output_of(async |out| import(&file, &config, out).await).await
    }

    async fn export(&self) -> Result<String, String> {
        let config = self.config();
        output_of(async |out| export(None, &config, out).await).await
    }

    async fn messenger_token(&self) -> Result<Option<String>, String> {
        let stores = Stores::open_existing(&self.config()).await.expect("the store opens");
        let role = stores.roles.role(&"acme".into(), &"guide".into()).await;
        let role = role.map_err(|error| crate::with_source(&error))?.expect("the agent is there");
        Ok(role.content.messenger_token.as_ref().map(|token| token.expose().to_owned()))
    }
}

async fn output_of(
    command: impl AsyncFnOnce(&mut dyn Write) -> Result<(), CommandError>,
) -> Result<String, String> {
    let mut out = Vec::new();
    command(&mut out).await.map_err(|error| error.to_string())?;
    Ok(String::from_utf8(out).expect("the output is text"))
}

#[tokio::test]
async fn a_file_is_imported_and_exported() {
    let desk = ImportFixture::new(FILE);
    let first = desk.import().await.expect("imported");
    assert!(first.ends_with(": 4 created, 0 changed, 0 unchanged.\n"), "{first}");
    let again = desk.import().await.expect("imported");
    assert!(again.ends_with(": 0 created, 0 changed, 4 unchanged.\n"), "{again}");
    let exported = desk.export().await.expect("exported");
    assert!(!exported.contains("canary") && exported.contains("Text."), "{exported}");

    let other = ImportFixture::new(&exported);
    let imported = other.import().await.expect("what is exported can be imported");
    let no_backend = "warning: agents[0].children has no backend that can be used, so each run is refused\n";
    let masked = "warning: agents[0].content.messengerToken is masked, and the database does not have this secret: save it again\n";
    assert!(imported.starts_with(&format!("{no_backend}{masked}")), "{imported}");
    std::fs::write(desk.path("workspace.json"), &exported).expect("written");
    let kept = desk.import().await.expect("imported where the secret is");
    assert_eq!(kept.matches("warning").count(), 1, "{kept}");
    assert!(kept.starts_with(no_backend), "{kept}");
    let without_mask = |text: &str| text.replace(r#""messengerToken": "***""#, "");
    assert_eq!(
        serde_json::from_str::<serde_json::Value>(&other.export().await.expect("exported")).expect("JSON")["documents"],
        serde_json::from_str::<serde_json::Value>(&without_mask(&exported)).expect("JSON")["documents"]
    );
}

#[tokio::test]
async fn an_export_of_an_unknown_company_is_an_error() {
    let desk = ImportFixture::new(FILE);
    desk.import().await.expect("imported");
    let config = desk.config();
    let export_of = async |company: &str| {
        let company = CompanyId::from(company);
        output_of(async |out| export(Some(&company), &config, out).await).await
    };
    assert!(export_of("acme").await.expect("exported").contains("guide"));
    let expected = "the database has no data of a company \"nope\"; check --company and DATABASE_URL";
    assert_eq!(export_of("nope").await, Err(expected.to_owned()));
}

#[tokio::test]
async fn an_invalid_file_is_reported_and_saves_nothing() {
    let bad = FILE.replace(r#""title": "one""#, r#""title": " ""#);
    let desk = ImportFixture::new(&bad);
    let refused = desk.import().await.expect_err("a blank title");
    assert!(refused.contains("todoLists[0].todos[0].title: is blank"), "{refused}");
    assert!(refused.contains("line 5"), "{refused}");

    let missing = desk.path("none.json");
    let config = desk.config();
    let refused = output_of(async |out| import(&missing, &config, out).await).await.expect_err("no file");
    assert!(refused.contains("none.json cannot be read"), "{refused}");
    assert!(!desk.path("data").exists(), "no database is made for a file that cannot be imported");

    let mut keyless = ImportFixture::new(FILE);
    keyless.env.remove("DATA_SECRET");
    let refused = keyless.import().await.expect_err("a secret and no key");
    assert!(refused.contains("DATA_SECRET is not set") && !refused.contains("canary"), "{refused}");
    assert!(!refused.contains("the store failed"), "{refused}");
    assert!(!keyless.export().await.expect("exported").contains("guide"), "nothing is half imported");
}

#[tokio::test]
async fn commands_on_stored_data_need_an_existing_database() {
    let desk = ImportFixture::new(FILE);
    let config = desk.config();
    let to = desk.path("copy.db");
    for refused in [
        desk.export().await,
        output_of(async |out| backup(&to, &config, out).await).await,
        output_of(async |out| rotate(&config, out).await).await,
    ] {
        let refused = refused.expect_err("there is no database");
        assert!(refused.contains("does not exist") && refused.contains("DATABASE_URL"), "{refused}");
    }
    assert!(!desk.path("data").exists(), "asking makes nothing");
}

#[tokio::test]
async fn a_backup_holds_everything_and_overwrites_nothing() {
    let mut desk = ImportFixture::new(FILE);
    desk.import().await.expect("imported");
    let (config, to) = (desk.config(), desk.path("copy.db"));
    output_of(async |out| backup(&to, &config, out).await).await.expect("a backup");
    let refused = output_of(async |out| backup(&to, &config, out).await).await.expect_err("it is there");
    assert!(refused.contains("already exists"), "{refused}");
    let original = desk.export().await.expect("exported");
    #[cfg(feature = "postgres")]
    {
        desk.env.insert("DATABASE_URL", "postgres://u@127.0.0.1:1/none".to_owned());
        let config = desk.config();
        let refused = output_of(async |out| backup(&to, &config, out).await).await.expect_err("it is there");
        assert!(refused.contains("copy.db already exists"), "{refused}");
    }
    desk.env.insert("DATABASE_URL", format!("sqlite://{}", to.display()));
    assert_eq!(desk.export().await.expect("exported"), original);
    assert_eq!(desk.messenger_token().await.expect("opened").as_deref(), Some("token-canary"));
}

#[tokio::test]
async fn secrets_move_to_a_new_key() {
    let mut desk = ImportFixture::new(FILE);
    desk.import().await.expect("imported");
    let old = desk.env.insert("DATA_SECRET", "data-secret-1111".to_owned()).expect("there was one");
    let rotated = async |desk: &ImportFixture| {
        let config = desk.config();
        output_of(async |out| rotate(&config, out).await).await
    };
    let lost = rotated(&desk).await.expect_err("nobody knows the old key");
    assert!(lost.starts_with("1 secrets could not be decrypted"), "{lost}");
    assert!(desk.messenger_token().await.expect_err("sealed").contains("guide"));

    desk.env.insert("DATA_SECRET_PREVIOUS", old);
    assert_eq!(desk.messenger_token().await.expect("opened").as_deref(), Some("token-canary"));
    let moved = rotated(&desk).await.expect("rotated");
    assert_eq!(moved, "1 agents: 1 secrets re-encrypted, 0 already encrypted with DATA_SECRET.\n");
    desk.env.remove("DATA_SECRET_PREVIOUS");
    assert_eq!(desk.messenger_token().await.expect("opened").as_deref(), Some("token-canary"));
    let again = rotated(&desk).await.expect("rotated");
    assert_eq!(again, "1 agents: 0 secrets re-encrypted, 1 already encrypted with DATA_SECRET.\n");
    desk.env.remove("DATA_SECRET");
    assert_eq!(
        rotated(&desk).await.expect_err("no key"),
        "DATA_SECRET is not configured; set it, or name a file with --config"
    );
}

#[tokio::test]
async fn tokens_of_subscriptions_move_too_and_are_not_exported() {
    let mut desk = ImportFixture::new(FILE);
    desk.import().await.expect("imported");
    let seal_path = |field| ["coding", "acme", "ada", field];
    let sealer = |secret: &str| Sealer::new(&Secret::new(secret), None);
    let seal =
        |field| sealer("data-secret-0000").seal(&seal_path(field), &Secret::new("canary")).expect("sealed");
    let stored = json!({"generation": 1, "signInId": "s", "state": "ok", "access": seal("access"), "refresh": seal("refresh"),
        "accessExpiresAt": "2026-11-22T08:00:00Z", "refreshedAt": "2026-11-22T08:00:00Z"});
    let key = Key::new("acme", coding::TOKEN_COLLECTION, "ada").expect("a key");
    let store = Stores::open_existing(&desk.config()).await.expect("the store opens").records;
    store.put_as(&key, &stored, Precondition::Absent).await.expect("stored");
    drop(store);
    let exported = desk.export().await.expect("exported");
    assert!(!exported.contains("coding") && !exported.contains("refresh"), "{exported}");

    let old = desk.env.insert("DATA_SECRET", "data-secret-1111".to_owned()).expect("there was one");
    desk.env.insert("DATA_SECRET_PREVIOUS", old);
    let config = desk.config();
    let moved = output_of(async |out| rotate(&config, out).await).await.expect("rotated");
    assert_eq!(moved, "1 agents: 3 secrets re-encrypted, 0 already encrypted with DATA_SECRET.\n");
    let store = Stores::open_existing(&config).await.expect("the store opens").records;
    let record = store.get_as::<serde_json::Value>(&key).await.expect("read").expect("there");
    let sealed = record.value["refresh"].as_str().expect("text");
    let opened = sealer("data-secret-1111").open(&seal_path("refresh"), sealed).expect("under the new key");
    assert_eq!(opened.expose(), "canary");
}

#[tokio::test]
async fn slips_are_refused_and_useless_settings_are_shown() {
    let role = |content: &str| FILE.replace(r#"{"messengerToken": "token-canary"}"#, content);
    let desk = ImportFixture::new(&role(r#"{"documentIds": ["d", "gone"]}"#));
    let refused = desk.import().await.expect_err("a document is missing");
    assert!(refused.contains("agents[0].content.documentIds[1]"), "{refused}");
    let desk = ImportFixture::new(&role(r#"{"tools": ["readTodo"]}"#));
    let refused = desk.import().await.expect_err("there is no such tool");
    assert!(refused.contains("agents[0].content.tools[0]"), "{refused}");
    let desk = ImportFixture::new(&role(r#"{"documentIds": ["d"], "widgetTools": ["recall"]}"#));
    let output = desk.import().await.expect("imported");
    let warning = "warning: agents[0].content.widgetTools[0] is open to visitors, but is not a tool of the agent's users\n";
    assert!(output.starts_with(warning), "{output}");
}
