use proptest::prelude::*;

use super::*;

/// Problems in which everything can be sent, or not.
fn problems() -> impl Strategy<Value = Problem> {
    (1..8_usize).prop_flat_map(|n| {
        let limit = prop_oneof![Just(0_u64), 1..200_u64, Just(u64::MAX)];
        (
            prop::collection::vec(0..1_000_u64, n),
            prop::collection::vec(0..2_000_u64, n),
            prop::collection::vec(0..50_u64, n * n),
            prop::collection::vec(limit, n * n),
        )
            .prop_map(move |(supply, room, cost, limit)| Problem {
                n,
                supply,
                room,
                cost,
                limit,
            })
    })
}

fn check_feasible(problem: &Problem, solution: &Solution) {
    let n = problem.n;
    let mut sent = 0;
    for row in 0..n {
        let of_row: u64 = solution.flow[row * n..][..n].iter().sum();
        assert!(of_row <= problem.supply[row]);
        sent += of_row;
        let taken: u64 = (0..n).map(|other| solution.flow[other * n + row]).sum();
        assert!(taken <= problem.room[row]);
    }
    assert_eq!(sent + solution.unplaced, problem.supply.iter().sum::<u64>());
    assert!(solution.flow.iter().zip(&problem.limit).all(|(flow, limit)| flow <= limit));
}

/// Reduced costs say that no unit could go a cheaper way: complementary slackness.
fn check_certificate(problem: &Problem, solution: &Solution) {
    let n = problem.n;
    for row in 0..n {
        for column in 0..n {
            let arc = row * n + column;
            let reduced = problem.cost[arc].cast_signed()
                - solution.row_price[row]
                - solution.column_price[column];
            if solution.flow[arc] < problem.limit[arc] && problem.supply[row] > 0 {
                assert!(reduced >= 0, "an open arc that would save something");
            }
            if solution.flow[arc] > 0 {
                assert!(reduced <= 0, "an arc in use that costs too much");
            }
        }
    }
    for column in 0..n {
        let taken: u64 = (0..n).map(|row| solution.flow[row * n + column]).sum();
        let price = solution.column_price[column];
        assert!(price <= 0);
        assert!(price == 0 || taken == problem.room[column], "a price where there is room");
    }
}

/// The most that can be sent: as Ford and Fulkerson, one unit of capacity at a time is not needed,
/// one path is.
fn largest_flow(problem: &Problem) -> u64 {
    let n = problem.n;
    // Nodes: source, rows, columns, sink.
    let (source, sink) = (2 * n, 2 * n + 1);
    let mut left = vec![vec![0_u64; 2 * n + 2]; 2 * n + 2];
    for row in 0..n {
        left[source][row] = problem.supply[row];
        left[n + row][sink] = problem.room[row];
        for column in 0..n {
            left[row][n + column] = problem.limit[row * n + column].min(1 << 30);
        }
    }
    let mut total = 0;
    while let Some(path) = any_path(&left, source, sink) {
        let edges = || path.windows(2).map(|edge| (edge[0], edge[1]));
        let amount = edges().map(|(from, to)| left[from][to]).min().expect("not empty");
        for (from, to) in edges() {
            left[from][to] -= amount;
            left[to][from] += amount;
        }
        total += amount;
    }
    total
}

/// The path of the fewest edges.
fn any_path(left: &[Vec<u64>], source: usize, sink: usize) -> Option<Vec<usize>> {
    let mut before = vec![None; left.len()];
    let mut queue = std::collections::VecDeque::from([source]);
    while let Some(node) = queue.pop_front() {
        for to in 0..left.len() {
            if left[node][to] > 0 && before[to].is_none() && to != source {
                before[to] = Some(node);
                queue.push_back(to);
            }
        }
    }
    let mut path = vec![sink];
    while path.last() != Some(&source) {
        path.push(before[*path.last()?]?);
    }
    path.reverse();
    Some(path)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn as_much_as_possible_is_sent(problem in problems()) {
        let solution = problem.clone().solve();
        check_feasible(&problem, &solution);
        let sent = problem.supply.iter().sum::<u64>() - solution.unplaced;
        prop_assert_eq!(sent, largest_flow(&problem));
    }

    #[test]
    fn prices_prove_that_nothing_is_cheaper(mut problem in problems()) {
        // Of what can be sent: the proof is about that.
        let n = problem.n;
        let flow = problem.clone().solve().flow;
        for row in 0..n {
            problem.supply[row] = flow[row * n..][..n].iter().sum();
        }
        let solution = problem.clone().solve();
        prop_assert_eq!(solution.unplaced, 0);
        check_feasible(&problem, &solution);
        check_certificate(&problem, &solution);
    }

    #[test]
    fn the_largest_numbers_do_not_overflow(mut problem in problems()) {
        let largest = crate::plan::Cost::COST_MAX;
        problem.cost.iter_mut().for_each(|cost| *cost = largest - *cost);
        problem.supply.iter_mut().for_each(|supply| *supply <<= 38);
        problem.room.iter_mut().for_each(|room| *room <<= 45);
        let solution = problem.clone().solve();
        check_feasible(&problem, &solution);
    }
}
