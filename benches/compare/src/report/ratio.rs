//! How a case compares with others of the same bench: the median of the ratios within each round,
//! so that what slowed a round down falls out.

use serde::{Deserialize, Serialize};

use super::{Figures, median};
use crate::bench::Form;
use crate::plan::Case;
use crate::system::System;

/// A case over another one. Below one is better, except for the rate.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Ratio {
    /// The other one: its system, and its form and runtime where they differ.
    pub against: String,
    /// Of the median latencies.
    pub median: f64,
    /// Of the 99th percentiles; absent in rows that are older than this figure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub p99: Option<f64>,
    /// Of the rates.
    pub per_second: f64,
    /// Of the processor times.
    pub cpu: f64,
}

/// Of the rounds in which both have figures; none against a case that has none of them.
pub(super) fn ratios(cases: &[Case], figures: &[Vec<Option<Figures>>], index: usize) -> Vec<Ratio> {
    let case = &cases[index];
    let others = cases.iter().zip(figures).filter_map(|(other, theirs)| {
        let against = label(case, other)?;
        let of = |figure: fn(&Figures) -> f64| {
            let rounds = figures[index].iter().zip(theirs);
            let both = rounds.filter_map(|(ours, theirs)| Some((ours.as_ref()?, theirs.as_ref()?)));
            median(both.map(|(ours, theirs)| figure(ours) / figure(theirs)))
        };
        Some(Ratio {
            against,
            median: of(|figures| figures.median_us)?,
            p99: of(|figures| figures.p99_us),
            per_second: of(|figures| figures.per_second)?,
            cpu: of(|figures| figures.cpu_us)?,
        })
    });
    // Processor time of too little to be seen has no ratio, and JSON no number for it.
    others.filter(|ratio| ratio.cpu.is_finite()).collect()
}

/// How `other` is called when `case` is compared with it; none when that says nothing.
fn label(case: &Case, other: &Case) -> Option<String> {
    if case.bench != other.bench || case == other {
        return None;
    }
    let same =
        (case.system == other.system, case.form == other.form, case.flavour == other.flavour);
    match same {
        // Two workers against one thread, or against one worker.
        (true, true, false) => (case.flavour.baseline() == Some(other.flavour))
            .then(|| format!("{} {}", other.system, other.flavour)),
        // A tree against the same asked one after another.
        (true, false, true) => {
            (other.form == Form::Client).then(|| format!("{} client", other.system))
        }
        (false, _, true) if case.bench.has_forms() => {
            let is_best = case.system.is_convoke() && case.form == Form::Tree;
            (is_best && !other.system.is_convoke() && other.form == Form::Client)
                .then(|| format!("{} client", other.system))
        }
        (false, _, true) if case.system.yardstick().is_some() => {
            (case.system.yardstick() == Some(other.system)).then(|| other.system.to_string())
        }
        (false, _, true) => {
            let is_common = matches!(other.system, System::TcpTokio | System::Tonic);
            let is_rival = case.system.is_convoke() && !other.system.is_convoke();
            (is_common || is_rival).then(|| other.system.to_string())
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::super::rows;
    use super::super::tests::{failed_sample, sample};
    use super::*;
    use crate::bench::Bench;
    use crate::flavour::Flavour;
    use crate::pin::Pin;

    #[test]
    fn a_ratio_is_taken_within_each_round() {
        let case = |system| Case {
            bench: Bench::UnaryLatency,
            system,
            form: Form::Client,
            flavour: Flavour::Ct,
        };
        let cases = [case(System::TcpTokio), case(System::ConvokeTcp)];
        // The second round was slow for both: it must not show.
        let samples = [vec![sample(10, 0), sample(50, 0)], vec![sample(12, 0), sample(60, 0)]];
        let rows = rows(&cases, &samples, Pin::One);
        assert!(rows[0].ratios.is_empty());
        let ratio = &rows[1].ratios[0];
        assert_eq!(ratio.against, "tcp-tokio");
        assert!((ratio.median - 1.2).abs() < 0.01, "{}", ratio.median);
    }

    #[test]
    fn what_failed_is_neither_better_nor_worse_than_anything() {
        let case = |system| Case {
            bench: Bench::UnaryLatency,
            system,
            form: Form::Client,
            flavour: Flavour::Ct,
        };
        let cases = [case(System::TcpTokio), case(System::ConvokeTcp)];
        for samples in [[sample(10, 0), failed_sample()], [failed_sample(), sample(12, 0)]] {
            let rows = rows(&cases, &samples.map(|sample| vec![sample]), Pin::One);
            assert_eq!(rows[1].ratios, []);
        }
        // A round in which one of them failed is no round of the ratio.
        let theirs = vec![failed_sample(), sample(10, 0)];
        let rows = rows(&cases, &[theirs, vec![sample(99, 0), sample(12, 0)]], Pin::One);
        assert!((rows[1].ratios[0].median - 1.2).abs() < 0.01, "{:?}", rows[1].ratios);
    }

    #[test]
    fn a_system_with_a_yardstick_is_compared_with_nothing_else() {
        let case = |system| Case {
            bench: Bench::UnaryLatency,
            system,
            form: Form::Client,
            flavour: Flavour::Ct,
        };
        for (system, yardstick) in [
            (System::ConvokeTls, System::ConvokeTcp),
            (System::ConvokeQuic, System::QuinnOneStream),
            (System::ConvokeGrpc, System::TonicBidi),
            (System::ConvokeEdge, System::Tonic),
        ] {
            let labels = System::ALL.map(|other| label(&case(system), &case(other)));
            let labels: Vec<_> = labels.into_iter().flatten().collect();
            assert_eq!(labels, [yardstick.name()], "{system}");
        }
    }

    #[test]
    fn more_threads_are_compared_with_fewer() {
        let case = |flavour| Case {
            bench: Bench::UnaryThroughput,
            system: System::Tarpc,
            form: Form::Client,
            flavour,
        };
        for (flavour, against) in [
            (Flavour::Ct, None),
            (Flavour::Mt, Some("tarpc ct")),
            (Flavour::OneWorker, None),
            (Flavour::TwoWorkers, Some("tarpc 1w")),
        ] {
            let others = Flavour::ALL.map(|other| label(&case(flavour), &case(other)));
            let labels: Vec<_> = others.iter().flatten().map(String::as_str).collect();
            assert_eq!(labels, against.into_iter().collect::<Vec<_>>(), "{flavour}");
        }
    }

    #[test]
    fn forms_are_compared_with_the_client_driven_one() {
        let case = |system, form| Case {
            bench: Bench::Fanout { leaves: 3 },
            system,
            form,
            flavour: Flavour::Ct,
        };
        let tree = case(System::ConvokeTcp, Form::Tree);
        let client = case(System::ConvokeTcp, Form::Client);
        let rival = case(System::Tonic, Form::Client);
        assert_eq!(label(&tree, &client).as_deref(), Some("convoke-tcp client"));
        assert_eq!(label(&tree, &rival).as_deref(), Some("tonic client"));
        assert_eq!(label(&client, &tree), None);
        assert_eq!(label(&client, &rival), None);
    }
}
