//! How well drawn topics were found: topics are matched one to one at minimum total cost (the pairing by nearest neighbour could
//! use one topic twice).

/// Mean over topics of Σ_v |β_kv − β*_kv| after the best one-to-one matching; between 0 and 2. Rows are topics.
///
/// # Panics
/// The numbers of topics differ, or there are none.
#[must_use]
pub fn matched_l1(found: &[Vec<f64>], drawn: &[Vec<f64>]) -> f64 {
    assert!(found.len() == drawn.len() && !found.is_empty(), "two different numbers of topics");
    let distance = |a: &Vec<f64>, b: &Vec<f64>| a.iter().zip(b).map(|(x, y)| (x - y).abs()).sum::<f64>();
    let cost: Vec<Vec<f64>> = found.iter().map(|f| drawn.iter().map(|p| distance(f, p)).collect()).collect();
    let total: f64 = assignment(&cost).iter().enumerate().map(|(row, &column)| cost[row][column]).sum();
    #[allow(clippy::cast_precision_loss, reason = "a number of topics")]
    let k = found.len() as f64;
    total / k
}

/// The column of every row in a one-to-one assignment of minimum total cost: shortest augmenting paths with potentials, O(n³).
///
/// # Panics
/// The matrix is not square.
#[must_use]
pub fn assignment(cost: &[Vec<f64>]) -> Vec<usize> {
    let n = cost.len();
    assert!(cost.iter().all(|row| row.len() == n), "an assignment needs a square matrix");
    // Column n stands for "no column"; `owner[j]` is the row that has column j.
    let mut owner = vec![usize::MAX; n + 1];
    let (mut row_price, mut column_price) = (vec![0.0; n], vec![0.0; n + 1]);
    for row in 0..n {
        owner[n] = row;
        let mut column = n;
        let mut reached = vec![false; n + 1];
        let mut least = vec![f64::INFINITY; n];
        let mut before = vec![n; n];
        while owner[column] != usize::MAX {
            reached[column] = true;
            let from = owner[column];
            let (mut delta, mut next) = (f64::INFINITY, n);
            for j in (0..n).filter(|&j| !reached[j]) {
                let reduced = cost[from][j] - row_price[from] - column_price[j];
                if reduced < least[j] {
                    (least[j], before[j]) = (reduced, column);
                }
                if least[j] < delta {
                    (delta, next) = (least[j], j);
                }
            }
            for j in 0..=n {
                if reached[j] {
                    row_price[owner[j]] += delta;
                    column_price[j] -= delta;
                } else if j < n {
                    least[j] -= delta;
                }
            }
            column = next;
        }
        while column != n {
            owner[column] = owner[before[column]];
            column = before[column];
        }
    }
    let mut columns = vec![0; n];
    owner[..n].iter().enumerate().for_each(|(column, &row)| columns[row] = column);
    columns
}
