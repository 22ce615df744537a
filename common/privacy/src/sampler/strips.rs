//! Strips of the half line: strip i ≥ 0 with probability proportional to exp(−i²/128), exactly.
//!
//! With c = [`WHOLE`], strip i is worth v_i = c·exp(−i²/128). For the strips below [`STRIPS`] a table holds the integers w_i = ⌊v_i⌋, and one more item of
//! weight S = 2⁶³ − Σ w_i for all that is left. 128 columns of height 2⁵⁶ with at most two items each (Walker's aliases, 1977) draw an item with probability
//! weight/2⁶³, to the last bit: seven bits of a word name a column, 56 the height in it.
//!
//! The item for all that is left ([`rare`], one draw in 10¹⁷) has S cells of weight 1: one for every strip of the table, accepted with
//! probability v_i − w_i; then 16 for the strips behind, a pair for each strip of the first eight, which goes on to the next eight with
//! probability ½ again and again, and is accepted with probability 2ᵍ·v_i ≤ 1 after g of them. Other cells, and what is not accepted, begin anew. So a
//! beginning ends at strip i with probability (w_i + v_i − w_i)/2⁶³, or (2·2⁻ᵍ⁻¹·2ᵍ·v_i)/2⁶³ behind the table: v_i/2⁶³ for every i.

use rand_core::Rng;

use crate::sampler::SamplerError;
use crate::sampler::bernoulli::uniform;

/// Strips in a scale: strip i begins at i/8 scales.
pub(super) const PER_SCALE: u64 = 8;

/// Strips of the table; from the 73rd on w_i is 0.
pub(super) const STRIPS: usize = 80;

/// The item for all that is left; its first cells are the strips'.
const RARE: u64 = STRIPS as u64;

/// c: the largest integer for which S cells are enough.
pub(super) const WHOLE: u64 = 876_203_919_619_693_531;

const COLUMNS: usize = 128;
const HEIGHT: u64 = 1 << 56;

pub(super) static TABLE: Table = Table::build();

/// A strip, and a fair coin that is independent of it; `None`: begin anew.
///
/// # Errors
/// As [`rare`].
#[inline]
pub(super) fn draw(rng: &mut impl Rng) -> Result<Option<(u64, bool)>, SamplerError> {
    let word = rng.next_u64();
    let column = (word >> 56) & (COLUMNS as u64 - 1);
    #[allow(clippy::cast_possible_truncation, reason = "seven bits")]
    let Column { own, other } = TABLE.columns[column as usize];
    let item = if word & (HEIGHT - 1) < own { column } else { other };
    let strip = if item == RARE { rare(rng)? } else { Some(item) };
    Ok(strip.map(|strip| (strip, word >> 63 == 1)))
}

/// One of the cells for all that is left.
///
/// # Errors
/// 2,688 bits of a uniform number do not decide: probability below 1e-800.
#[cold]
pub(super) fn rare(rng: &mut impl Rng) -> Result<Option<u64>, SamplerError> {
    let cell = uniform(rng, TABLE.left);
    let whole = usize::try_from(cell).ok().and_then(|cell| TABLE.weights.get(cell));
    let (strip, doublings, whole) = if let Some(&whole) = whole {
        (cell, 0, whole)
    } else if cell < RARE + 2 * PER_SCALE {
        let mut doublings = 0;
        while rng.next_u64() >> 63 == 1 {
            doublings += 1;
        }
        (RARE + PER_SCALE * doublings + cell % PER_SCALE, doublings, 0)
    } else {
        return Ok(None);
    };
    Ok(exceeds(rng, strip, doublings, whole)?.then_some(strip))
}

/// How many digits of base 2⁶⁴ are compared: first, if these are not enough, and at last.
const DIGITS: [usize; 3] = [1, 6, 42];

/// From this strip on 2ᵍ·v_i is below 2⁻²⁶⁸⁸, the unit of the last of 42 digits.
const NOTHING: u64 = 512;

/// True with probability 2^`doublings`·v − `whole`, a number in [0, 1], for the v of `strip`: whether it exceeds a uniform number, of which more digits
/// are drawn until that is known.
pub(super) fn exceeds(rng: &mut impl Rng, strip: u64, doublings: u64, whole: u64) -> Result<bool, SamplerError> {
    let mut drawn = vec![whole];
    for digits in DIGITS {
        drawn.resize_with(1 + digits, || rng.next_u64());
        let mut value = digits_of(strip, doublings, digits);
        // Lists of digits are ordered as their numbers are. In units of the last digit the uniform number (plus `whole`) lies in [drawn, drawn + 1)
        // and the other one in [value, value + 2).
        if drawn < value {
            return Ok(true);
        }
        add_one(&mut value);
        if drawn > value {
            return Ok(false);
        }
    }
    Err(SamplerError)
}

/// 2^`doublings`·v: whole part and digits of a number that is at most that, and less than two units of the last digit below it (as long as there are at most
/// 42, from [`NOTHING`] on).
pub(super) fn digits_of(strip: u64, doublings: u64, digits: usize) -> Vec<u64> {
    if strip >= NOTHING {
        return vec![0; 1 + digits];
    }
    // The power is less than 2²¹ units of its last digit too small, which c·2ᵍ < 2¹¹⁴ makes 2¹³⁵: less than one unit of the third digit before it.
    let mut value = times(&power(strip * strip, digits + 3), WHOLE);
    if doublings > 0 {
        // Behind the table v is below 1, and below `NOTHING` there are at most 53 doublings.
        value = times(&value[1..], 1 << doublings);
    }
    value.truncate(1 + digits);
    value
}

/// exp(−`n`/128) as digits behind the point, by squaring and multiplying. A product of numbers that are a and b units of the last digit too small is at most
/// a + b + 2 units too small, for what is cut off and for ab. With 3 units for n = 1 these are less than 5n, which is below 2²¹ for n < 2¹⁸.
fn power(n: u64, digits: usize) -> Vec<u64> {
    let Some(highest) = n.checked_ilog2() else { return vec![u64::MAX; digits] };
    let base = first_power(digits);
    let mut result = base.clone();
    for bit in (0..highest).rev() {
        result = product(&result, &result);
        if n >> bit & 1 == 1 {
            result = product(&result, &base);
        }
    }
    result
}

/// The same for n = 1, at most 3 units of the last digit too small: x(1) of x(k) = 1 − x(k+1)/(128k), which begins where 128ᵏk! exceeds 2^(64·`digits`).
fn first_power(digits: usize) -> Vec<u64> {
    let mut x = vec![u64::MAX; digits];
    for k in (1..=10 * digits as u64).rev() {
        divide(&mut x, 128 * k);
        // One unit more than the quotient and no less than the true one; 1 − y is ¬y and one unit.
        add_one(&mut x);
        x.iter_mut().for_each(|digit| *digit = !*digit);
    }
    x
}

// Digits of base 2⁶⁴, the highest first.

fn divide(x: &mut [u64], by: u64) {
    let mut rest = 0;
    for digit in x {
        let here = u128::from(rest) << 64 | u128::from(*digit);
        rest = low(here % u128::from(by));
        *digit = low(here / u128::from(by));
    }
}

fn add_one(x: &mut [u64]) {
    for digit in x.iter_mut().rev() {
        let carry;
        (*digit, carry) = digit.overflowing_add(1);
        if !carry {
            return;
        }
    }
}

/// One digit more.
fn times(x: &[u64], by: u64) -> Vec<u64> {
    let mut result = vec![0; 1 + x.len()];
    let mut carry = 0;
    for (digit, x) in result[1..].iter_mut().zip(x).rev() {
        let here = u128::from(*x) * u128::from(by) + u128::from(carry);
        (carry, *digit) = (low(here >> 64), low(here));
    }
    result[0] = carry;
    result
}

/// The product of two numbers below 1 with equally many digits, cut off after as many.
fn product(x: &[u64], y: &[u64]) -> Vec<u64> {
    let mut all = vec![0; x.len() + y.len()];
    for (i, x) in x.iter().enumerate().rev() {
        let mut carry = 0;
        for (digit, y) in all[i + 1..].iter_mut().zip(y).rev() {
            let here = u128::from(*x) * u128::from(*y) + u128::from(*digit) + u128::from(carry);
            (carry, *digit) = (low(here >> 64), low(here));
        }
        all[i] = carry;
    }
    all.truncate(x.len());
    all
}

#[allow(clippy::cast_possible_truncation, reason = "the lower half is meant")]
const fn low(x: u128) -> u64 {
    x as u64
}

/// One column: below `own` its own item, above it another one.
#[derive(Clone, Copy)]
pub(super) struct Column {
    pub(super) own: u64,
    pub(super) other: u64,
}

pub(super) struct Table {
    /// w_i.
    pub(super) weights: [u64; STRIPS],
    /// S.
    pub(super) left: u64,
    pub(super) columns: [Column; COLUMNS],
}

impl Table {
    const fn build() -> Self {
        // Numbers of 127 bits behind the point: exp(−i²/128), and exp(−(2i + 1)/128) from one to the next.
        let ratio = exp_of_minus(2);
        let (mut power, mut step) = (1 << 127, exp_of_minus(1));
        let (mut weights, mut left, mut i) = ([0; STRIPS], 1 << 63, 0);
        while i < STRIPS {
            // Off by less than 2⁻⁵⁰; a test compares the whole parts with those of many digits.
            weights[i] = low(multiply(power, (WHOLE as u128) << 64) >> 64);
            left -= weights[i];
            power = multiply(power, step);
            step = multiply(step, ratio);
            i += 1;
        }
        assert!(left >= RARE + 2 * PER_SCALE, "a cell for every strip");
        Self { weights, left, columns: columns(&weights, left) }
    }
}

/// Columns of the items with these weights, which are 2⁶³ together.
const fn columns(weights: &[u64; STRIPS], left: u64) -> [Column; COLUMNS] {
    let mut rest = [0; COLUMNS];
    let mut i = 0;
    while i < STRIPS {
        rest[i] = weights[i];
        i += 1;
    }
    rest[STRIPS] = left;
    let mut columns = [Column { own: HEIGHT, other: 0 }; COLUMNS];
    let mut open = [true; COLUMNS];
    loop {
        // An item that does not fill its column, and one that has too much. Where there is none, all that are open fill theirs.
        let (mut small, mut large, mut item) = (COLUMNS, COLUMNS, 0);
        while item < COLUMNS {
            if open[item] && rest[item] < HEIGHT {
                small = item;
            } else if open[item] && rest[item] > HEIGHT {
                large = item;
            }
            item += 1;
        }
        if small == COLUMNS {
            return columns;
        }
        columns[small] = Column { own: rest[small], other: large as u64 };
        open[small] = false;
        rest[large] -= HEIGHT - rest[small];
    }
}

/// exp(−n/128) with 127 bits behind the point, a few units off, for n of 1 or 2.
const fn exp_of_minus(n: u128) -> u128 {
    let (mut x, mut k) = (1u128 << 127, 20);
    while k > 0 {
        x = (1 << 127) - 1 - x / (128 * k) * n;
        k -= 1;
    }
    x
}

/// The product of two numbers with 127 bits behind the point, a few units too small.
const fn multiply(x: u128, y: u128) -> u128 {
    const LOW: u128 = u64::MAX as u128;
    let (high, low) = ((x >> 64, y >> 64), (x & LOW, y & LOW));
    (high.0 * high.1 + ((high.0 * low.1) >> 64) + ((low.0 * high.1) >> 64)) << 1
}
