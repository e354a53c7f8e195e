//! The golden vectors, checked as `cargo run --example plan -- check` does.

#[path = "../../examples/plan/vector.rs"]
mod vector;

use std::path::Path;

use self::vector::{Outcome, check_text};

fn folder() -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata/vectors")
}

#[test]
fn every_instance_matches() {
    let mut instances = 0;
    for entry in std::fs::read_dir(folder()).expect("the vectors are there") {
        let path = entry.expect("the vectors are there").path();
        if path.extension().is_none_or(|extension| extension != "json") {
            continue;
        }
        let text = std::fs::read_to_string(&path).expect("a readable vector");
        for Outcome { id, misses } in check_text(&text).expect("a vector") {
            assert_eq!(misses, Vec::<String>::new(), "{} {id}", path.display());
            instances += 1;
        }
    }
    assert_eq!(instances, 24);
}

#[test]
fn a_wrong_expectation_is_a_miss() {
    let text = std::fs::read_to_string(folder().join("thesis-worked-example.json"));
    let text = text.expect("a readable vector");
    let miss = |right: &str, wrong: &str| {
        assert!(text.contains(right), "{right}");
        let outcomes = check_text(&text.replace(right, wrong)).expect("still a vector");
        outcomes[0].misses.concat()
    };
    assert!(miss("\"max_total\": \"9\"", "\"max_total\": \"8\"").contains("max_total"));
    assert!(miss("\"objective\": \"22\"", "\"objective\": \"21\"").contains("phase2.objective"));
    assert!(miss("\"sustainable\": true", "\"sustainable\": false").contains("sustainable"));
    assert!(miss("\"0\", \"4\", \"1\"", "\"4\", \"0\", \"1\"").contains("algorithm1.substreams"));
    assert!(miss("[2, 10, 6]", "[2, 10]").contains("uplink has not n entries"));
    assert!(miss("\"uplink\"", "\"up\"").contains("missing field `uplink`"));
    assert!(check_text("[]").is_err() && check_text("{").is_err());
}

#[test]
fn a_site_alone_can_be_a_vector() {
    let alone = r#"{
        "schema": "overlay-vector/1", "id": "alone", "n": 1,
        "uplink": [3], "downlink": [0], "rates": [4], "latency": [[0]],
        "expected": {
            "sustainable": false, "violations": ["uplink:0"],
            "phase1": { "max_total": "3", "fair_rates": ["3"], "proportional_scale": "3/4" },
            "phase2": {
                "latency_weights": [[0]], "objective": "0", "objective_f64": 0.0,
                "mean_delivery_latency_f64": null,
                "direct_only_feasible": true, "direct_only_objective": "0"
            },
            "algorithm1": { "substreams": [["3"]], "objective": "0" },
            "one_relay_trees": { "objective_f64": 0.0 }
        }
    }"#;
    let outcomes = check_text(alone).expect("a vector");
    assert_eq!(outcomes[0].misses, Vec::<String>::new());
}
