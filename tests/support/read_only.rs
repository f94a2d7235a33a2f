//! Read-only mode of a PostgreSQL database.

use tokio_postgres::NoTls;

/// Sets or clears the read-only mode of the URL's database, in which the server rejects writes as a standby does. It
/// applies to new connections, so existing ones are terminated.
pub(crate) async fn set_read_only(url: &str, is_read_only: bool) {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await.expect("a connection");
    tokio::spawn(async move { drop(connection.await) });
    // A separate statement: a read-only transaction cannot become one that writes.
    client.batch_execute("SET default_transaction_read_only = off").await.expect("set");
    let sql = format!(
        "DO $$ BEGIN
             EXECUTE format('ALTER DATABASE %I SET default_transaction_read_only = {is_read_only}', current_database());
         END $$;
         SELECT pg_terminate_backend(pid) FROM pg_stat_activity
         WHERE datname = current_database() AND pid <> pg_backend_pid()"
    );
    client.batch_execute(&sql).await.expect("set");
}
