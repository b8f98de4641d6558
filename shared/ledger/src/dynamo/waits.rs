//! What runs wait for (H): decisions and children, as rows beside the head.

use aws_sdk_dynamodb::types::{AttributeValue, Delete, Put, TransactWriteItem};
use keel_kernel::decision::Decision;
use keel_kernel::{Head, SessionId, TenantId, Transition};

use super::items::{self, Item, Reader, attr};
use super::reads::PartitionPrefix;
use super::row::{read_row, row_item};
use super::transact::{Transacted, item, key, unbuilt};
use super::{Dynamo, keys};
use crate::plan::plan;
use crate::port::{Consistency, SessionKey, StoreError};
use crate::sessions::ChildOf;

/// Present on a decision's row while nobody has answered it, so that a condition can see it.
const OPEN: &str = "open";

/// A child's place in its parent's list.
pub(super) fn child_item(child: &SessionKey, of: &ChildOf) -> Item {
    let parent = SessionKey { tenant: child.tenant.clone(), session: of.parent.clone() };
    Item::from([
        ("pk".to_owned(), AttributeValue::S(parent.to_string())),
        ("sk".to_owned(), AttributeValue::S(format!("{}{}", keys::CHILD_PREFIX, child.session))),
        (attr::VERSION.to_owned(), items::number(items::VERSION)),
    ])
}

impl Dynamo {
    /// H2: opens a decision and puts it into the tenant's list. One that is there already stays as it is.
    pub async fn open_decision(&self, at: &SessionKey, decision: &Decision) -> Result<(), StoreError> {
        let mut row = row_item(&at.to_string(), keys::approval(&decision.id), decision);
        row.insert(OPEN.to_owned(), AttributeValue::Bool(true));
        let listed =
            row_item(at.tenant.as_str(), keys::open_approval(decision.opened_ms, &decision.id), &decision.id);
        let mut actions = Vec::new();
        for new in [row, listed] {
            actions.push(self.new_row(new)?);
        }
        match self.transact(actions).await? {
            Transacted::Done | Transacted::Refused => Ok(()),
            Transacted::Conflict => Err(StoreError::NotWritten("TransactWriteItems", "conflict".into())),
        }
    }

    /// A decision.
    pub async fn decision(
        &self,
        at: &SessionKey,
        id: &str,
        consistency: Consistency,
    ) -> Result<Option<Decision>, StoreError> {
        let place = (at.to_string(), keys::approval(id));
        let got = self.get(&self.tables.state, place, consistency).await?;
        got.as_ref().map(read_row).transpose()
    }

    /// A session's decisions, answered ones too, strongly read.
    pub async fn decisions(&self, at: &SessionKey) -> Result<Vec<Decision>, StoreError> {
        let under = PartitionPrefix { pk: &at.to_string(), prefix: keys::APPROVAL_PREFIX };
        self.all(under, None).await?.iter().map(read_row).collect()
    }

    /// The names of a tenant's open decisions, oldest first, from behind a sort key; and where the next page begins.
    pub async fn open_decisions(
        &self,
        tenant: &TenantId,
        after: Option<&str>,
        limit: usize,
    ) -> Result<(Vec<String>, Option<String>), StoreError> {
        let under = PartitionPrefix { pk: tenant.as_str(), prefix: keys::OPEN_PREFIX };
        let (items, next) = self.page(under, after, limit, true).await?;
        Ok((items.iter().map(read_row).collect::<Result<_, _>>()?, next))
    }

    /// H1, H2: writes a decision's answer where there is none yet and, in the same write, what it makes of the head. False:
    /// something moved meanwhile; look again.
    pub(crate) async fn write_answer(
        &self,
        at: &SessionKey,
        before: &Head,
        nudged: Option<&Transition>,
        answered: &Decision,
    ) -> Result<bool, StoreError> {
        let put = Put::builder()
            .table_name(&self.tables.state)
            .set_item(Some(item(row_item(&at.to_string(), keys::approval(&answered.id), answered))))
            .condition_expression("attribute_exists(#open)")
            .expression_attribute_names("#open", OPEN)
            .build()
            .map_err(unbuilt)?;
        let listed = keys::open_approval(answered.opened_ms, &answered.id);
        let unlist = Delete::builder()
            .table_name(&self.tables.state)
            .set_key(Some(key((at.tenant.to_string(), listed))))
            .build()
            .map_err(unbuilt)?;
        let mut actions = vec![
            TransactWriteItem::builder().put(put).build(),
            TransactWriteItem::builder().delete(unlist).build(),
        ];
        if let Some(nudged) = nudged {
            actions.push(self.head_action(plan(at, before, nudged).head)?);
        }
        Ok(matches!(self.transact(actions).await?, Transacted::Done))
    }

    /// Takes an expired or abandoned decision off the tenant's list.
    pub async fn unlist_decision(&self, at: &SessionKey, decision: &Decision) -> Result<(), StoreError> {
        let listed = keys::open_approval(decision.opened_ms, &decision.id);
        self.remove_setting(&at.tenant, listed).await.map(drop)
    }

    /// A session's children, strongly read.
    pub async fn children(&self, at: &SessionKey) -> Result<Vec<SessionKey>, StoreError> {
        let under = PartitionPrefix { pk: &at.to_string(), prefix: keys::CHILD_PREFIX };
        let child = |item: &items::Read| {
            let id = |sk: &str| sk.strip_prefix(keys::CHILD_PREFIX).map(SessionId::parse);
            let session = Reader::versioned(item)?.parse("sk", |sk| id(sk).and_then(Result::ok).ok_or(()))?;
            Ok(SessionKey { tenant: at.tenant.clone(), session })
        };
        self.all(under, None).await?.iter().map(child).collect()
    }
}
