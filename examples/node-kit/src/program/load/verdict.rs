//! The verdict: is there all that was acknowledged, and does one order agree with all answers?

use std::collections::BTreeMap;
use std::fmt;

use anyhow::{Context as _, Result};
use bytes::Bytes;

use super::super::store::{Store, text};
use super::Loaded;
use super::caller::{OWN, SHARED_KEYS};
use crate::history::{Call, Outcome, Recorder};
use crate::linearizable::{self, Report};

/// Lost writes that are named; the others are counted.
const NAMED: usize = 10;

/// Judgement of what clients were told. Displayed, it is the last line or two of a program.
#[derive(Clone, Debug)]
pub struct Verdict {
    acknowledged: usize,
    /// A line each.
    lost: Vec<String>,
    report: Report,
}

impl Verdict {
    /// True when nothing is lost, and one order agrees with all.
    pub fn is_good(&self) -> bool {
        self.lost.is_empty() && self.report.is_linearizable()
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { acknowledged, lost, report } = self;
        if self.is_good() {
            let calls = report.calls;
            return write!(
                f,
                "verified: {acknowledged} acknowledged writes present, {calls} operations linearizable"
            );
        }
        for line in lost.iter().take(NAMED) {
            writeln!(f, "LOST: {line}")?;
        }
        if !report.is_linearizable() {
            writeln!(f, "{report}")?;
        }
        write!(f, "FAILED: {} acknowledged writes are lost", lost.len())
    }
}

impl Loaded {
    /// Reads everything back, and judges what the clients were told.
    ///
    /// # Errors
    /// Those of the store; when the history contradicts itself.
    pub async fn judge(&self, client: &mut impl Store) -> Result<Verdict> {
        let stored = read_back(client, &self.recorder).await.context("reading back")?;
        let is_lost = |(key, value): &&(String, String)| stored.get(key) != Some(value);
        let words = |(key, value): &(String, String)| {
            format!("{key} was acknowledged as {value:?}, and is {:?}", stored.get(key))
        };
        let lost = self.acknowledged.iter().filter(is_lost).map(words).collect();
        let report = linearizable::check(&self.recorder.history())?;
        Ok(Verdict { acknowledged: self.acknowledged.len(), lost, report })
    }
}

/// All keys of single clients, and a recorded read of each shared one.
async fn read_back(
    client: &mut impl Store,
    recorder: &Recorder,
) -> Result<BTreeMap<String, String>> {
    for number in 0..SHARED_KEYS {
        let key = format!("shared/{number}");
        let call = recorder.call(0, &key, Call::Get);
        call.returned(Outcome::Found(client.get(key.into()).await?.as_ref().map(text)));
    }
    let (mut stored, mut from) = (BTreeMap::new(), Bytes::new());
    loop {
        let (pairs, next) = client.scan(from, OWN.into(), 0).await?;
        stored.extend(pairs.into_iter().map(|(key, value)| (text(&key), text(&value))));
        let Some(next) = next else { return Ok(stored) };
        from = next;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verdict(recorder: &Recorder, lost: &[&str]) -> Verdict {
        let report = linearizable::check(&recorder.history()).unwrap();
        let lost = lost.iter().map(|&line| line.to_owned()).collect();
        Verdict { acknowledged: 7, lost, report }
    }

    #[test]
    fn a_lost_write_and_an_answer_without_an_order_are_each_a_failure() {
        let recorder = Recorder::new();
        let put = recorder.call(1, "k", Call::Put { value: "a".into() });
        put.returned(Outcome::Done);
        let good = verdict(&recorder, &[]);
        let words = "verified: 7 acknowledged writes present, 1 operations linearizable";
        assert!(good.is_good() && good.to_string() == words, "{good}");
        let lost = verdict(&recorder, &["own/1 was acknowledged"]);
        assert!(!lost.is_good());
        let words = "LOST: own/1 was acknowledged\nFAILED: 1 acknowledged writes are lost";
        assert_eq!(lost.to_string(), words);
        recorder.call(2, "k", Call::Get).returned(Outcome::Found(None));
        let stale = verdict(&recorder, &[]);
        assert!(!stale.is_good() && stale.to_string().contains("key k"), "{stale}");
    }
}
