//! The transportation problem, solved exactly in integers by successive shortest paths.
//!
//! Each row sends its supply to columns that have room, at a cost per unit and up to a limit on
//! each arc. Rows are served one after the other, each along the cheapest path from it to a column
//! with room; such a path may move what earlier rows sent. Prices of rows and columns keep the
//! costs along paths from being negative, so that Dijkstra's algorithm finds it. In the end they
//! prove that nothing cheaper exists.
//!
//! (Substituting 5.9 into 5.11 makes phase 2 of ShallowForest such a problem: a relayed unit takes
//! n-2 units of what the relay has left, whoever the root is, and so does a direct one at the
//! root.)

/// So many rows and columns, both `n`.
#[derive(Clone, Debug)]
pub(crate) struct Problem {
    pub(crate) n: usize,
    /// Units that each row has to send.
    pub(crate) supply: Vec<u64>,
    /// Units that each column can take.
    pub(crate) room: Vec<u64>,
    /// Cost of a unit from row `i` to column `j` at `i * n + j`, at most
    /// [`Cost::COST_MAX`](super::Cost::COST_MAX).
    pub(crate) cost: Vec<u64>,
    /// Most units that each arc carries.
    pub(crate) limit: Vec<u64>,
}

/// Flow from each row to each column, with prices that prove that there is no cheaper one.
#[derive(Clone, Debug)]
pub(crate) struct Solution {
    /// From row `i` to column `j` at `i * n + j`.
    pub(crate) flow: Vec<u64>,
    /// Units that could not be sent.
    pub(crate) unplaced: u64,
    /// Price of a unit more of a row.
    #[cfg_attr(not(test), expect(dead_code, reason = "the certificate, which tests check"))]
    pub(crate) row_price: Vec<i64>,
    /// Price of a unit more of room in a column: zero or less, and less only when the column is
    /// full.
    #[cfg_attr(not(test), expect(dead_code, reason = "the certificate, which tests check"))]
    pub(crate) column_price: Vec<i64>,
}

impl Problem {
    /// Sends as much as possible, as cheaply as that can be sent.
    pub(crate) fn solve(self) -> Solution {
        let mut solver = Solver::new(self);
        let unplaced = (0..solver.problem.n).map(|row| solver.serve(row)).sum();
        let Solver { flow, row_price, column_price, .. } = solver;
        Solution { flow, unplaced, row_price, column_price }
    }
}

struct Solver {
    problem: Problem,
    flow: Vec<u64>,
    row_price: Vec<i64>,
    column_price: Vec<i64>,
    rows: Vec<Reached>,
    columns: Vec<Reached>,
}

/// A row or column in the search for the cheapest path.
#[derive(Clone, Copy)]
struct Reached {
    distance: i64,
    /// The column before a row, the row before a column.
    before: usize,
    is_done: bool,
}

const UNREACHED: Reached = Reached { distance: i64::MAX, before: usize::MAX, is_done: false };

/// The nearest that is not done.
enum Next {
    Row(usize),
    Column(usize),
}

impl Solver {
    fn new(problem: Problem) -> Self {
        let n = problem.n;
        Self {
            flow: vec![0; n * n],
            row_price: vec![0; n],
            column_price: vec![0; n],
            rows: vec![UNREACHED; n],
            columns: vec![UNREACHED; n],
            problem,
        }
    }

    /// Sends the supply of a row. What could not be sent.
    fn serve(&mut self, row: usize) -> u64 {
        let mut left = self.problem.supply[row];
        loop {
            left -= self.send_along_tight_arcs(row, left);
            if left == 0 {
                break;
            }
            let Some(column) = self.search(row) else {
                break;
            };
            self.reprice(self.columns[column].distance);
            left -= self.send(row, column, left);
        }
        left
    }

    /// Sends over what costs nothing by now, to columns with room: that takes no search. How much
    /// it was.
    fn send_along_tight_arcs(&mut self, row: usize, supply: u64) -> u64 {
        let (n, price, mut left) = (self.problem.n, self.row_price[row], supply);
        for (column, arc) in (row * n..(row + 1) * n).enumerate() {
            // The price of a column with room is zero.
            if self.problem.room[column] > 0 && self.problem.cost[arc].cast_signed() == price {
                let open = self.problem.limit[arc] - self.flow[arc];
                let amount = left.min(open).min(self.problem.room[column]);
                self.flow[arc] += amount;
                self.problem.room[column] -= amount;
                left -= amount;
            }
        }
        supply - left
    }

    /// The nearest column with room.
    fn search(&mut self, start: usize) -> Option<usize> {
        self.rows.fill(UNREACHED);
        self.columns.fill(UNREACHED);
        self.rows[start].distance = 0;
        loop {
            match self.nearest()? {
                Next::Column(column) if self.problem.room[column] > 0 => return Some(column),
                Next::Column(column) => self.leave_column(column),
                Next::Row(row) => self.leave_row(row),
            }
        }
    }

    fn nearest(&self) -> Option<Next> {
        let nearest = |reached: &[Reached]| {
            let mut nearest = (i64::MAX, usize::MAX);
            for (index, reached) in reached.iter().enumerate() {
                if !reached.is_done && reached.distance < nearest.0 {
                    nearest = (reached.distance, index);
                }
            }
            nearest
        };
        let (row, column) = (nearest(&self.rows), nearest(&self.columns));
        match (row.0, column.0) {
            (i64::MAX, i64::MAX) => None,
            // A row only opens ways to columns, at no less: it goes first.
            (of_row, of_column) if of_row <= of_column => Some(Next::Row(row.1)),
            _ => Some(Next::Column(column.1)),
        }
    }

    /// Every column can be reached from the row to which the arc is not full.
    fn leave_row(&mut self, row: usize) {
        let n = self.problem.n;
        self.rows[row].is_done = true;
        let (distance, price) = (self.rows[row].distance, self.row_price[row]);
        let arcs = row * n..(row + 1) * n;
        let open = self.flow[arcs.clone()].iter().zip(&self.problem.limit[arcs.clone()]);
        let arcs = open.zip(&self.problem.cost[arcs]).zip(&self.column_price);
        for ((((flow, limit), cost), column_price), reached) in arcs.zip(&mut self.columns) {
            let far = distance + cost.cast_signed() - price - column_price;
            if flow < limit && far < reached.distance {
                (reached.distance, reached.before) = (far, row);
            }
        }
    }

    /// Every row can be reached from the column that sends to it: it could send less.
    fn leave_column(&mut self, column: usize) {
        let n = self.problem.n;
        self.columns[column].is_done = true;
        let distance = self.columns[column].distance;
        for row in 0..n {
            let arc = row * n + column;
            if self.flow[arc] == 0 || self.rows[row].is_done {
                continue;
            }
            let cost = self.problem.cost[arc].cast_signed();
            let far = distance - (cost - self.row_price[row] - self.column_price[column]);
            let reached = &mut self.rows[row];
            if far < reached.distance {
                (reached.distance, reached.before) = (far, column);
            }
        }
    }

    /// Makes every arc on the cheapest path cost nothing, and none less than nothing.
    fn reprice(&mut self, path: i64) {
        for (price, reached) in self.row_price.iter_mut().zip(&self.rows) {
            *price += (path - reached.distance).max(0);
        }
        for (price, reached) in self.column_price.iter_mut().zip(&self.columns) {
            *price -= (path - reached.distance).max(0);
        }
    }

    /// Sends along the path that was found, as much as goes. How much it was.
    fn send(&mut self, start: usize, end: usize, left: u64) -> u64 {
        let mut amount = left.min(self.problem.room[end]);
        self.walk(start, end, |solver, arc, is_forward| {
            let can = if is_forward {
                solver.problem.limit[arc] - solver.flow[arc]
            } else {
                solver.flow[arc]
            };
            amount = amount.min(can);
        });
        self.walk(start, end, |solver, arc, is_forward| {
            let flow = &mut solver.flow[arc];
            *flow = if is_forward { *flow + amount } else { *flow - amount };
        });
        self.problem.room[end] -= amount;
        debug_assert!(amount > 0, "a path that was found carries something");
        amount
    }

    /// Goes over the arcs of the path, from its end; each with whether it is used forwards.
    fn walk(&mut self, start: usize, end: usize, mut visit: impl FnMut(&mut Self, usize, bool)) {
        let (n, mut column) = (self.problem.n, end);
        loop {
            let row = self.columns[column].before;
            visit(self, row * n + column, true);
            if row == start {
                return;
            }
            column = self.rows[row].before;
            visit(self, row * n + column, false);
        }
    }
}

#[cfg(test)]
mod tests;
