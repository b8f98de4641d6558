//! The tables, read from the one place that defines them (`infra/tables.json`), and created if they are missing.
//!
//! The file has the shape of DynamoDB's CreateTable request. A member that this module does not know is an error, so that
//! nothing that is written there is silently left out of a table.

use std::collections::BTreeSet;
use std::error::Error;
use std::sync::LazyLock;
use std::time::Duration;

use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::error::BuildError;
use aws_sdk_dynamodb::operation::create_table::CreateTableError;
use aws_sdk_dynamodb::types as sdk;
use aws_sdk_dynamodb::types::{TableStatus, TimeToLiveStatus};
use serde::Deserialize;

/// How long a table may take from its creation to its first use, and how often that is looked up. A cloud needs
/// seconds; the SDK's own waiter would first look after twenty.
const READY_WITHIN: Duration = Duration::from_secs(120);
const LOOK_EVERY: Duration = Duration::from_millis(250);

/// One table's definition.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "PascalCase", deny_unknown_fields)]
pub struct Table {
    /// The logical name: `events`, `state` or `partials`. A prefix comes before it wherever the table stands.
    #[serde(rename = "name")]
    pub name: String,
    /// The attributes that keys are made of.
    pub attribute_definitions: Vec<Attribute>,
    /// The table's key.
    pub key_schema: Vec<Key>,
    /// The table's global secondary indexes.
    #[serde(default)]
    pub global_secondary_indexes: Vec<Index>,
    /// How its capacity is paid.
    pub billing_mode: String,
    /// The attribute that holds an item's time to live, where its items have one.
    pub time_to_live_attribute: Option<String>,
}

/// An attribute that a key is made of.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "PascalCase", deny_unknown_fields)]
pub struct Attribute {
    /// Its name.
    pub attribute_name: String,
    /// `S`, `N` or `B`.
    pub attribute_type: String,
}

/// One part of a key.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq, PartialOrd, Ord)]
#[serde(rename_all = "PascalCase", deny_unknown_fields)]
pub struct Key {
    /// The attribute.
    pub attribute_name: String,
    /// `HASH` or `RANGE`.
    pub key_type: String,
}

/// A global secondary index.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "PascalCase", deny_unknown_fields)]
pub struct Index {
    /// Its name.
    pub index_name: String,
    /// Its key.
    pub key_schema: Vec<Key>,
    /// What it holds of an item.
    pub projection: Projection,
}

/// What an index holds of an item.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "PascalCase", deny_unknown_fields)]
pub struct Projection {
    /// `KEYS_ONLY` or `ALL`. `INCLUDE` would need its list of attributes carried here first.
    pub projection_type: String,
}

/// All tables, in the file's order.
pub fn all() -> &'static [Table] {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct File {
        tables: Vec<Table>,
    }
    static TABLES: LazyLock<Vec<Table>> = LazyLock::new(|| {
        let file: File = serde_json::from_str(include_str!("../../../infra/tables.json"))
            .expect("the file is compiled in, and a test of this module reads it");
        file.tables
    });
    &TABLES
}

/// Makes each table that is absent, named `{prefix}{name}`, waits until it can be used and sets its time to live.
/// Returns the full names of those it made. Calling it again is harmless, also from another process.
///
/// A table of that name with other keys or indexes is an error, which nothing else here would notice.
pub async fn create_missing(client: &Client, prefix: &str) -> Result<Vec<String>, TablesError> {
    let mut made = Vec::new();
    for table in all() {
        let name = format!("{prefix}{}", table.name);
        if create(client, table, &name).await? {
            made.push(name.clone());
        }
        let standing = until_active(client, &name).await?;
        if shape_found(&standing) != shape_wanted(table) {
            return Err(TablesError::Different { table: name });
        }
        if let Some(attribute) = &table.time_to_live_attribute {
            expire_by(client, &name, attribute).await?;
        }
    }
    Ok(made)
}

/// Whether the table was made by this call.
async fn create(client: &Client, table: &Table, name: &str) -> Result<bool, TablesError> {
    let undefined = |source| TablesError::Definition { table: name.to_owned(), source };
    let attributes = table.attribute_definitions.iter().map(Attribute::to_sdk).collect::<Result<_, _>>();
    let indexes = table.global_secondary_indexes.iter().map(Index::to_sdk).collect::<Result<Vec<_>, _>>();
    let indexes = indexes.map_err(undefined)?;
    let answer = client
        .create_table()
        .table_name(name)
        .set_attribute_definitions(Some(attributes.map_err(undefined)?))
        .set_key_schema(Some(keys(&table.key_schema).map_err(undefined)?))
        // DynamoDB refuses an empty list where it takes an absent one.
        .set_global_secondary_indexes((!indexes.is_empty()).then_some(indexes))
        .billing_mode(table.billing_mode.as_str().into())
        .send()
        .await;
    match answer {
        Ok(_) => Ok(true),
        Err(error)
            if error.as_service_error().is_some_and(CreateTableError::is_resource_in_use_exception) =>
        {
            Ok(false)
        }
        Err(error) => Err(refused("CreateTable", name, error)),
    }
}

async fn until_active(client: &Client, name: &str) -> Result<sdk::TableDescription, TablesError> {
    let started = tokio::time::Instant::now();
    loop {
        let answer = client.describe_table().table_name(name).send().await;
        match answer {
            Ok(answer) => match answer.table {
                Some(table) if table.table_status == Some(TableStatus::Active) => return Ok(table),
                Some(_) | None => {}
            },
            // Descriptions are eventually consistent: a table that was just made may not be known yet.
            Err(error) if error.as_service_error().is_some_and(|e| e.is_resource_not_found_exception()) => {}
            Err(error) => return Err(refused("DescribeTable", name, error)),
        }
        if started.elapsed() >= READY_WITHIN {
            return Err(TablesError::NotReady { table: name.to_owned(), waited: READY_WITHIN });
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

async fn expire_by(client: &Client, name: &str, attribute: &str) -> Result<(), TablesError> {
    // DynamoDB refuses to turn on what is on already, so the present state is asked for first.
    let answer = client.describe_time_to_live().table_name(name).send().await;
    let standing =
        answer.map_err(|error| refused("DescribeTimeToLive", name, error))?.time_to_live_description;
    if let Some(ttl) = standing
        && matches!(ttl.time_to_live_status, Some(TimeToLiveStatus::Enabled | TimeToLiveStatus::Enabling))
    {
        return match ttl.attribute_name.as_deref() {
            Some(found) if found == attribute => Ok(()),
            Some(_) | None => Err(TablesError::Different { table: name.to_owned() }),
        };
    }
    let specification = sdk::TimeToLiveSpecification::builder()
        .attribute_name(attribute)
        .enabled(true)
        .build()
        .map_err(|source| TablesError::Definition { table: name.to_owned(), source })?;
    let answer =
        client.update_time_to_live().table_name(name).time_to_live_specification(specification).send().await;
    answer.map(drop).map_err(|error| refused("UpdateTimeToLive", name, error))
}

/// What cannot be changed by using the table: its key, and each index's name and key.
type Shape = BTreeSet<(Option<String>, String, String)>;

fn shape_wanted(table: &Table) -> Shape {
    let part = |index: Option<&str>, key: &Key| {
        (index.map(str::to_owned), key.attribute_name.clone(), key.key_type.clone())
    };
    let own = table.key_schema.iter().map(|key| part(None, key));
    let indexes = &table.global_secondary_indexes;
    own.chain(indexes.iter().flat_map(|i| i.key_schema.iter().map(|key| part(Some(&i.index_name), key))))
        .collect()
}

fn shape_found(table: &sdk::TableDescription) -> Shape {
    let part = |index: Option<&str>, key: &sdk::KeySchemaElement| {
        (index.map(str::to_owned), key.attribute_name.clone(), key.key_type.as_str().to_owned())
    };
    let own = table.key_schema().iter().map(|key| part(None, key));
    let indexes = table.global_secondary_indexes();
    own.chain(indexes.iter().flat_map(|i| i.key_schema().iter().map(|key| part(i.index_name(), key))))
        .collect()
}

fn keys(schema: &[Key]) -> Result<Vec<sdk::KeySchemaElement>, BuildError> {
    let one = |key: &Key| {
        sdk::KeySchemaElement::builder()
            .attribute_name(&key.attribute_name)
            .key_type(key.key_type.as_str().into())
            .build()
    };
    schema.iter().map(one).collect()
}

impl Attribute {
    fn to_sdk(&self) -> Result<sdk::AttributeDefinition, BuildError> {
        let builder = sdk::AttributeDefinition::builder().attribute_name(&self.attribute_name);
        builder.attribute_type(self.attribute_type.as_str().into()).build()
    }
}

impl Index {
    fn to_sdk(&self) -> Result<sdk::GlobalSecondaryIndex, BuildError> {
        let kind = self.projection.projection_type.as_str().into();
        sdk::GlobalSecondaryIndex::builder()
            .index_name(&self.index_name)
            .set_key_schema(Some(keys(&self.key_schema)?))
            .projection(sdk::Projection::builder().projection_type(kind).build())
            .build()
    }
}

fn refused(operation: &'static str, table: &str, source: impl Error + Send + Sync + 'static) -> TablesError {
    TablesError::Refused { operation, table: table.to_owned(), source: Box::new(source) }
}

/// Why the tables are not as defined.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TablesError {
    /// The definition lacks what DynamoDB requires.
    #[error("the definition of table {table} is incomplete")]
    Definition {
        /// The table's full name.
        table: String,
        /// What the SDK missed.
        #[source]
        source: BuildError,
    },
    /// The store refused an operation, or could not be reached.
    #[error("{operation} failed for table {table}")]
    Refused {
        /// The operation.
        operation: &'static str,
        /// The table's full name.
        table: String,
        /// The SDK's error. Boxed, since each operation has a type of its own.
        #[source]
        source: Box<dyn Error + Send + Sync>,
    },
    /// A table of this name stands with other keys, indexes or another time to live.
    #[error("table {table} is there already and differs from its definition")]
    Different {
        /// The table's full name.
        table: String,
    },
    /// The table was not active in time.
    #[error("table {table} was not active after {} s", waited.as_secs())]
    NotReady {
        /// The table's full name.
        table: String,
        /// How long it was waited for.
        waited: Duration,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_defines_the_three_tables() {
        let names: Vec<_> = all().iter().map(|table| table.name.as_str()).collect();
        assert_eq!(names, ["events", "state", "partials"]);
        for table in all() {
            let key: Vec<_> =
                table.key_schema.iter().map(|k| (k.attribute_name.as_str(), k.key_type.as_str())).collect();
            assert_eq!(key, [("pk", "HASH"), ("sk", "RANGE")], "{}", table.name);
            assert_eq!(table.billing_mode, "PAY_PER_REQUEST", "{}", table.name);
        }
        let expiring: Vec<_> = all().iter().map(|table| table.time_to_live_attribute.as_deref()).collect();
        assert_eq!(expiring, [None, None, Some("ttl")]);
    }

    #[test]
    fn a_member_that_would_be_left_out_is_not_read() {
        let unknown = r#"{"name":"x","AttributeDefinitions":[],"KeySchema":[],"BillingMode":"PAY_PER_REQUEST","Tags":[]}"#;
        assert!(serde_json::from_str::<Table>(unknown).unwrap_err().to_string().contains("Tags"));
    }
}
