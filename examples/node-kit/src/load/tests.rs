use super::*;

/// Takes this long, but for one request of it, which takes longer.
struct Slow {
    takes: Duration,
    stalls: Option<(u64, Duration)>,
    asked: u64,
}

impl Slow {
    fn new(takes_ms: u64) -> Self {
        Self { takes: Duration::from_millis(takes_ms), stalls: None, asked: 0 }
    }

    fn stalling(takes_ms: u64, at: u64, for_ms: u64) -> Self {
        Self { stalls: Some((at, Duration::from_millis(for_ms))), ..Self::new(takes_ms) }
    }
}

impl Client for Slow {
    async fn operate(&mut self) -> Outcome {
        self.asked += 1;
        match self.stalls {
            Some((at, time)) if at == self.asked => tokio::time::sleep(time).await,
            _ => tokio::time::sleep(self.takes).await,
        }
        Outcome::Done
    }
}

fn plan(pace: Pace) -> Plan {
    Plan::new(pace).warm_up(Duration::from_secs(1)).time(Duration::from_secs(10))
}

fn near(found: u64, expected: u64) -> bool {
    found.abs_diff(expected) <= expected / 50 + 1
}

#[tokio::test(start_paused = true)]
async fn a_closed_loop_asks_as_often_as_it_is_answered() {
    let report = run(&plan(Pace::Closed), (0..4).map(|_| Slow::new(10)), |_| ()).await;
    assert!(near(report.completed, 4000), "{report:?}");
    assert!(near(report.latency_us.p50, 10_000), "{report:?}");
    assert_eq!((report.clients, report.not_begun, report.failed), (4, 0, 0));
}

#[tokio::test(start_paused = true)]
async fn a_loop_of_so_many_requests_ends_with_the_last_of_them() {
    let report = run(&Plan::requests(1_000), (0..4).map(|_| Slow::new(10)), |_| ()).await;
    // One of each client was under way as counting began.
    assert!((1_000..=1_004).contains(&report.completed), "{report:?}");
    assert!((2.49..2.53).contains(&report.seconds), "{report:?}");
    assert!((390.0..410.0).contains(&report.per_second), "{report:?}");
    assert!(report.gap_ms_max <= 11.0, "{report:?}");
    let none = run(&Plan::requests(0), [Slow::new(10)], |_| ()).await;
    assert!(none.completed <= 1, "{none:?}");
}

#[tokio::test(start_paused = true)]
async fn an_open_loop_keeps_its_rate() {
    for (per_second, expected) in [(0.5, 5), (40.0, 400), (2500.0, 25_000)] {
        let clients = (0..64).map(|_| Slow::new(5));
        let report = run(&plan(Pace::Open { per_second }), clients, |_| ()).await;
        assert!(near(report.completed, expected), "{expected}: {report:?}");
        assert_eq!(report.not_begun, 0);
        assert!(near(report.latency_us.max, 5000), "{report:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn those_who_should_have_asked_during_a_stall_count_as_waiting() {
    // Once a second of stall in ten seconds of 100 requests a second, each of 1 ms.
    let stalls = |at| Slow::stalling(1, at, 1000);
    let open = run(&plan(Pace::Open { per_second: 100.0 }), [stalls(500)], |_| ()).await;
    // 100 of 1,000 waited, 0.5 s on average: so a tenth of them is above the ninth.
    assert!(open.latency_us.p99 > 800_000, "{open:?}");
    assert!(open.latency_us.mean > 40_000, "{open:?}");
    assert!(near(open.completed, 1000) && open.gap_ms_max >= 990.0, "{open:?}");
    let closed = run(&plan(Pace::Closed), [stalls(5000)], |_| ()).await;
    assert!(closed.latency_us.p99 < 2000, "{closed:?}");
    assert!(closed.gap_ms_max >= 990.0 && closed.latency_us.max >= 990_000, "{closed:?}");
}

#[tokio::test(start_paused = true)]
async fn requests_that_find_no_client_are_told() {
    let plan = plan(Pace::Open { per_second: 100.0 }).warm_up(Duration::ZERO);
    let report = run(&plan, [Slow::new(100)], |_| ()).await;
    assert!(near(report.completed, 100), "{report:?}");
    assert!(report.not_begun >= 850, "{report:?}");
    let begun = report.completed + report.not_begun;
    assert!(begun <= 1002, "{report:?}");
    assert!(report.latency_us.max > 5_000_000, "{report:?}");
    assert!(report.to_string().contains("not begun"), "{report}");
}

#[tokio::test(start_paused = true)]
async fn nobody_there_and_nothing_answered_end_too() {
    let none = run(&plan(Pace::Open { per_second: 10.0 }), Vec::<Slow>::new(), |_| ()).await;
    assert_eq!((none.completed, none.not_begun, none.latency_us), (0, 100, Latencies::default()));
    assert_eq!(none.gap_ms_max, 10_000.0);
    let late = run(&plan(Pace::Closed), [Slow::new(60_000)], |_| ()).await;
    assert_eq!((late.completed, late.failed, late.latency_us.max), (0, 0, 0));
}

#[tokio::test(start_paused = true)]
async fn seconds_are_told_and_come_to_the_whole() {
    let mut moments = Vec::new();
    let keep = |moment: &Moment| moments.push(moment.clone());
    let report = run(&plan(Pace::Closed), [Slow::new(10)], keep).await;
    assert_eq!(moments.len(), 10);
    assert!(moments.iter().all(|moment| near(moment.completed, 100)), "{moments:?}");
    let sum: u64 = moments.iter().map(|moment| moment.completed).sum();
    assert!(report.completed - sum <= 1, "{sum} of {report:?}");
}

/// Ends each time in the next way.
struct Failing(Vec<Outcome>);

impl Client for Failing {
    async fn operate(&mut self) -> Outcome {
        tokio::time::sleep(Duration::from_millis(1)).await;
        self.0.pop().expect("asked too often")
    }
}

#[tokio::test(start_paused = true)]
async fn failures_are_counted_by_kind_and_have_no_latency() {
    let unknown = Outcome::Unknown("no answer".to_owned());
    let failed = Outcome::Failed("no leader".to_owned());
    let plan = Plan::new(Pace::Closed).warm_up(Duration::ZERO).time(Duration::from_millis(3));
    let ends = vec![Outcome::Done, Outcome::Done, unknown.clone(), failed.clone()];
    let report = run(&plan, [Failing(ends)], |_| ()).await;
    assert_eq!((report.failed, report.unknown), (1, 1), "{report:?}");
    assert_eq!(report.complaint.as_deref(), Some("no leader"));
    // One that panics is counted, and the others go on.
    let report = run(&plan, [Failing(Vec::new()), Failing(vec![failed; 9])], |_| ()).await;
    assert_eq!((report.failed, report.unknown), (3, 1), "{report:?}");
}

#[tokio::test(start_paused = true)]
async fn a_report_is_an_object_of_json() {
    let report = run(&plan(Pace::Open { per_second: 10.0 }), [Slow::new(2)], |_| ()).await;
    let json = serde_json::to_value(&report).unwrap();
    assert_eq!(json["loop"], "open");
    assert_eq!((&json["asked_per_second"], &json["per_second"]), (&10.0.into(), &10.0.into()));
    assert_eq!(json["completed"], 100);
    assert_eq!(json["latency_us"]["p999"], report.latency_us.p999);
}
