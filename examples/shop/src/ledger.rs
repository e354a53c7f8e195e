//! How a front takes items out of the stock: it changes a register by two majorities, as in
//! CASPaxos (Rystsov, 2018), so that fronts never sell the same item twice, whichever of them fails
//! when.

use std::time::Duration;

use convoke::quorum::{Configuration, Majority};
use convoke::{Client, Code, NodeId, Status};
use tokio::sync::Mutex;

use crate::proto::{
    AcceptRequest, Answer, Ballot, Item, Level, Order, PrepareRequest, Receipt, StockClient,
};
use crate::stock::rank;

/// Tries of one order against other fronts.
const TRIES: u32 = 16;

/// Orders that a level remembers: with more than that many a message would become large.
const ORDERS_MAX: usize = 10_000;

/// The stock as one front sees it.
#[derive(Debug)]
pub struct Ledger {
    front: NodeId,
    replicas: Configuration,
    /// The round of the next ballot. One order at a time, or a front would outbid itself.
    round: Mutex<u64>,
}

impl Ledger {
    /// Of the front of this name, with the stock at these replicas.
    pub fn new(front: NodeId, replicas: Configuration) -> Self {
        Self { front, replicas, round: Mutex::new(1) }
    }

    /// Takes an order of a customer out of the stock, unless it was taken before.
    ///
    /// # Errors
    /// With [`Code::FailedPrecondition`] where too few are left: nothing was taken. With any other,
    /// such as [`Code::Unavailable`], it may have been; the same order can be sent again.
    pub async fn take(
        &self,
        client: &Client,
        customer: NodeId,
        (item, order): (&Item, &Order),
    ) -> Result<Receipt, Status> {
        let mut round = self.round.lock().await;
        for attempt in 0..TRIES {
            let ballot = Ballot { round: *round, front: self.front.get() };
            *round += 1;
            match self.attempt(client, ballot, customer, (item, order)).await? {
                Ok(left) => return Ok(receipt(item, order, left)),
                Err(Outbid { by }) => *round = by.max(*round) + 1,
            }
            // Fronts that outbid each other wait differently long.
            let pause = u64::from(attempt + 1) * (1 + self.front.get() % 7);
            tokio::time::sleep(Duration::from_millis(pause)).await;
        }
        Err(Status::new(Code::Aborted, "other fronts sell this item all the time: send it again"))
    }

    /// One ballot: what is left if it wins.
    async fn attempt(
        &self,
        client: &Client,
        ballot: Ballot,
        customer: NodeId,
        (item, order): (&Item, &Order),
    ) -> Result<Result<u32, Outbid>, Status> {
        let replicas = StockClient::new(client).on(&self.replicas);
        let request = PrepareRequest { item: item.id, ballot: Some(ballot) };
        let promises = replicas.prepare(request).quorum(Majority).await?;
        if let Some(outbid) = outbid(&promises) {
            return Ok(Err(outbid));
        }
        let latest = promises.into_iter().filter_map(|(_, answer)| answer.register);
        let latest = latest.max_by_key(|register| register.accepted.map_or((0, 0), rank));
        let level = latest.and_then(|register| register.level);
        let level = level.unwrap_or(Level { left: item.supply, ..Level::default() });
        // Also where nothing changes: only an accepted level is sure to stay.
        let (level, sold) = sell(level, customer, order);
        let left = level.left;
        let request = AcceptRequest { item: item.id, ballot: Some(ballot), level: Some(level) };
        let accepted = replicas.accept(request).quorum(Majority).await?;
        match outbid(&accepted) {
            Some(outbid) => Ok(Err(outbid)),
            None => sold.map(|()| Ok(left)),
        }
    }
}

/// A replica has promised a later round.
struct Outbid {
    by: u64,
}

fn outbid(answers: &[(NodeId, Answer)]) -> Option<Outbid> {
    let refused = answers.iter().filter(|(_, answer)| !answer.granted);
    let rounds = refused.map(|(_, answer)| answer.register.as_ref()?.promised);
    rounds.map(|ballot| ballot.map_or(0, |ballot| ballot.round)).max().map(|by| Outbid { by })
}

/// The level after an order, and whether it was taken, now or before.
fn sell(mut level: Level, customer: NodeId, order: &Order) -> (Level, Result<(), Status>) {
    // Each customer names its own, as its certificate proves.
    let name = format!("{customer}/{}", order.id);
    if let Some(count) = level.orders.get(&name).copied() {
        let text = format!("order {} was taken before, for {count}", order.id);
        let is_same = count == order.count;
        return (level, if is_same { Ok(()) } else { Err(Status::new(Code::AlreadyExists, text)) });
    }
    if level.orders.len() >= ORDERS_MAX {
        return (level, Err(Status::new(Code::ResourceExhausted, "too many orders of this item")));
    }
    let Some(left) = level.left.checked_sub(order.count) else {
        let text = format!("{} are left of item {}", level.left, order.item);
        return (level, Err(Status::new(Code::FailedPrecondition, text)));
    };
    level.left = left;
    level.orders.insert(name, order.count);
    (level, Ok(()))
}

fn receipt(item: &Item, order: &Order, left: u32) -> Receipt {
    let Order { id, count, .. } = order.clone();
    Receipt {
        order: id,
        count,
        left,
        price_cents: item.price_cents.saturating_mul(u64::from(count)),
    }
}
