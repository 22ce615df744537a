//! What is not the certificate that was written, or claims more than it proves, is refused.
#![allow(clippy::unwrap_used)]

use std::path::Path;

use dp_pvi_verifier::{Refusal, verify};
use sha2::{Digest, Sha256};

/// Certificates as the accountant wrote them, by the names of their files.
fn golden() -> Vec<(String, String)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden");
    let read = |entry: std::io::Result<std::fs::DirEntry>| {
        let path = entry.unwrap().path();
        (path.file_stem().unwrap().to_str().unwrap().to_owned(), std::fs::read_to_string(path).unwrap())
    };
    let mut all: Vec<_> = std::fs::read_dir(folder).unwrap().map(read).collect();
    all.sort();
    assert!(all.len() >= 8);
    all
}

fn named(name: &str) -> String {
    golden().into_iter().find(|(found, _)| found == name).unwrap().1
}

/// The same content under a seal that fits it: what someone writes who knows the format.
fn sealed(text: &str) -> String {
    let body = text.rsplit_once(",\"seal\":").unwrap().0;
    let seal: String = Sha256::digest(body.as_bytes()).iter().map(|byte| format!("{byte:02x}")).collect();
    format!("{body},\"seal\":\"{seal}\"}}")
}

/// The number behind a field's first appearance, and the text with another one there.
fn number(text: &str, field: &str) -> f64 {
    let rest = text.split(&format!("\"{field}\":")).nth(1).unwrap();
    rest.split([',', '}', ']']).next().unwrap().parse().unwrap()
}

fn with(text: &str, field: &str, value: &str) -> String {
    let (before, rest) = text.split_once(&format!("\"{field}\":")).unwrap();
    let end = rest.find([',', '}', ']']).unwrap();
    sealed(&format!("{before}\"{field}\":{value}{}", &rest[end..]))
}

/// A seeded source of numbers.
struct Random(u64);

impl Random {
    fn below(&mut self, n: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 % u64::try_from(n).unwrap()).unwrap()
    }
}

/// Parts are counted before anything is done with them.
#[test]
fn many_parts_of_one_proof_are_refused() {
    let (_, text) = golden().into_iter().find(|(_, text)| text.contains("\"parts\":[[")).unwrap();
    let (before, rest) = text.split_once("\"parts\":[").unwrap();
    let parts = "[0.0,-1099511627775,1099511627775,0],".repeat((1 << 22) + 8);
    assert!(verify(sealed(&format!("{before}\"parts\":[{parts}{rest}")).as_bytes()).is_err());
}

#[test]
fn golden_certificates_hold() {
    for (name, text) in golden() {
        let certificate = verify(text.as_bytes()).unwrap_or_else(|refusal| panic!("{name}: {refusal}"));
        assert_eq!(sealed(&text), text, "{name}");
        assert!(certificate.epsilon > 0.0 && certificate.slack < 1e-3 * certificate.epsilon, "{name}");
    }
}

/// A byte is replaced, removed, doubled or exchanged for its neighbour.
#[test]
fn a_thousand_random_mutations_are_refused() {
    let (all, mut random) = (golden(), Random(0x9E37_79B9_7F4A_7C15));
    let mut tried = 0;
    while tried < 1000 {
        let (name, text) = &all[random.below(all.len())];
        let mut bytes = text.clone().into_bytes();
        let at = random.below(bytes.len());
        match random.below(4) {
            0 => bytes[at] = *b"0123456789.e-\",{}[] an\n\xff".get(random.below(24)).unwrap_or(&b'x'),
            1 => drop(bytes.remove(at)),
            2 => bytes.insert(at, bytes[at]),
            _ => {
                let other = (at + 1) % bytes.len();
                bytes.swap(at, other);
            }
        }
        if bytes == text.as_bytes() {
            continue;
        }
        tried += 1;
        assert!(verify(&bytes).is_err(), "{name}: {}", String::from_utf8_lossy(&bytes));
    }
}

/// The same with a seal that fits, where the claim becomes stronger: less ε or δ, less noise, more steps, a higher rate, a larger bound.
#[test]
fn random_stronger_claims_are_refused_under_any_seal() {
    let (all, mut random) = (golden(), Random(0xD1B5_4A32_D192_ED03));
    for _ in 0..150 {
        let (name, text) = loop {
            let (name, text) = &all[random.below(all.len())];
            // Half a second each.
            if name != "rare" {
                break (name, text);
            }
        };
        let part = [1e-3, 3e-3, 1e-2, 0.1, 0.5][random.below(5)];
        let changed = match random.below(5) {
            0 => with(text, "epsilon", &format!("{}", number(text, "epsilon") * (1.0 - part))),
            1 => with(text, "delta", &format!("{:?}", 1e-5 * (1.0 - part.max(3e-3))).replace("e-", "e-")),
            2 => with(text, "count", &format!("{}", number(text, "count").mul_add(1.0 + part, 1.0).floor())),
            3 if text.contains("\"gaussian\":") => with(text, "gaussian", &format!("{}", number(text, "gaussian") * (1.0 - part))),
            4 if text.contains("\"poisson\":") => with(text, "poisson", &format!("{}", number(text, "poisson") * (1.0 + part))),
            4 if text.contains("\"fixed_batch\":") => with(text, "fixed_batch", &format!("{}", number(text, "fixed_batch") * (1.0 + part))),
            4 if text.contains("\"random_allocation\":3") => with(text, "random_allocation", "2"),
            _ => continue,
        };
        assert!(verify(changed.as_bytes()).is_err(), "{name}: {changed}");
    }
}

/// Fewer batches cost more, a unit that is replaced has no pair, and so many kinds of epochs that they would take minutes are refused before the first is computed.
#[test]
fn epochs_are_of_two_batches_to_a_million_and_of_sixteen_kinds_at_most() {
    let text = named("epochs");
    assert!(verify(with(&text, "random_allocation", "2").as_bytes()).is_err());
    for number in ["0", "1", "1048577", "-3", "3.0"] {
        assert!(matches!(verify(with(&text, "random_allocation", number).as_bytes()), Err(Refusal::Form(_))), "{number}");
    }
    for noise in ["0.124", "1001.0"] {
        assert!(matches!(verify(with(&text, "gaussian", noise).as_bytes()), Err(Refusal::Form(_))), "{noise}");
    }
    assert!(matches!(verify(sealed(&text.replacen("add_remove", "replace_one", 1)).as_bytes()), Err(Refusal::Form(_))));
    // One unit whose terms are 0 in its place is no worse than none.
    verify(sealed(&text.replacen("add_remove", "zero_out", 1)).as_bytes()).unwrap();

    let kinds: Vec<String> = (2..19)
        .map(|batches| format!("{{\"noise\":{{\"gaussian\":2.0}},\"sampling\":{{\"random_allocation\":{batches}}},\"count\":1}}"))
        .collect();
    let (before, rest) = text.split_once("\"events\":[").unwrap();
    let mut many = format!("{before}\"events\":[{}],\"proofs\":{}", kinds.join(","), rest.split_once("\"proofs\":").unwrap().1);
    for parts in ["[[0.0,-814,", "[[0.0,-1137,"] {
        many = many.replacen(parts, &format!("[{}{}", "[0.0,-1,1,0],".repeat(16), &parts[1..]), 1);
    }
    let refusal = verify(sealed(&many).as_bytes()).unwrap_err();
    assert!(refusal.to_string().contains("2^23 points at most"), "{refusal} {many}");
}

/// Hints of any kind prove nothing that is false: what is accepted is accepted by the proof, and a lower ε never is.
#[test]
fn random_hints_do_not_prove_a_false_claim() {
    let mut random = Random(0x2545_F491_4F6C_DD1D);
    let text = named("poisson-replace");
    let below = with(&text, "epsilon", &format!("{}", number(&text, "epsilon") * 0.998));
    let mut accepted = 0;
    for _ in 0..200 {
        let factor = [0.25, 0.5, 0.9, 1.1, 2.0, 4.0][random.below(6)];
        let field = ["width", "tilt", "first", "truncation", "rounding", "points"][random.below(6)];
        let value = number(&text, field) * factor;
        let value = if matches!(field, "first" | "points") { format!("{}", value.floor()) } else { format!("{value:?}") };
        accepted += usize::from(verify(with(&text, field, &value).as_bytes()).is_ok());
        assert!(verify(with(&below, field, &value).as_bytes()).is_err(), "{field} {value}");
    }
    assert!(accepted > 0);
    // Wherever the window lies.
    for k in -40..40 {
        let first = format!("{}", k * 1024);
        assert!(verify(with(&below, "first", &first).as_bytes()).is_err(), "{first}");
    }
}

#[test]
fn the_nastiest_mutations_are_refused() {
    let text = named("poisson");
    let mixed = named("mixed");
    let swap = |from: &str, to: &str| {
        assert!(text.contains(from), "{from}");
        text.replacen(from, to, 1)
    };
    let digits = format!("{}", number(&text, "epsilon"));
    let last = digits.len() - 1;
    let lower = format!("{}{}", &digits[..last], char::from(digits.as_bytes()[last] - 1));
    let beyond = format!("{}", number(&text, "epsilon") - 2.0 * number(&text, "slack"));
    let first_event = mixed.split("\"events\":[").nth(1).unwrap().split("},{").next().unwrap().to_owned() + "},";
    let nasty: Vec<(&str, String)> = vec![
        ("epsilon less by a last digit, under the old seal", swap(&digits, &lower)),
        ("epsilon below the slack", with(&text, "epsilon", &beyond)),
        ("a slack larger than epsilon", with(&text, "slack", "9.0")),
        ("a step more than was accounted", with(&text, "count", "202")),
        ("a higher rate", with(&text, "poisson", "0.0201")),
        ("less noise", with(&text, "gaussian", "1.99")),
        ("a release of no noise", with(&text, "gaussian", "1e-300")),
        ("another relation", sealed(&swap("add_remove", "replace_one"))),
        ("an event dropped, under the old seal", mixed.replacen(&first_event, "", 1)),
        ("an event dropped, and its grid kept", sealed(&mixed.replacen(&first_event, "", 1))),
        ("an event twice", sealed(&mixed.replacen(&first_event, &first_event.repeat(2), 1))),
        ("keys in another order", sealed(&swap("\"delta\":0.00001,\"epsilon\":", "\"epsilon\":0.00001,\"delta\":"))),
        ("a key twice", sealed(&swap("\"delta\":0.00001,", "\"delta\":0.00001,\"delta\":0.00001,"))),
        ("a key of no meaning", sealed(&swap("\"binding\":", "\"note\":1,\"binding\":"))),
        ("a newline at the end", format!("{text}\n")),
        ("a second certificate behind it", text.repeat(2)),
        ("a space", sealed(&swap("\"delta\":", "\"delta\": "))),
        ("the same number in other digits", with(&text, "delta", "1e-5")),
        ("delta that is no number", with(&text, "delta", "NaN")),
        ("delta that is null", with(&text, "delta", "null")),
        ("an epsilon of 1e400", with(&text, "epsilon", "1e400")),
        ("a negative epsilon", with(&text, "epsilon", "-0.5")),
        ("a negative count", with(&text, "count", "-200")),
        ("no steps", with(&text, "count", "0")),
        ("more steps than numbers hold", with(&text, "count", "18446744073709551615")),
        ("less truncated mass than there is", with(&text, "truncation", "1e-20")),
        ("smaller rounding errors than there are", with(&text, "rounding", "0.0")),
        ("a negative budget", with(&text, "truncation", "-1e-6")),
        ("a tilt that puts the mass elsewhere", with(&text, "tilt", "400.0")),
        ("no tilt", with(&text, "tilt", "0.0")),
        ("a wider grid", with(&text, "width", "0.01")),
        ("a width of 0", with(&text, "width", "0.0")),
        ("fewer points", with(&text, "points", "1024")),
        ("points that are no power of two", with(&text, "points", "32769")),
        ("more points than anybody should compute", with(&text, "points", "8388608")),
        ("a window above epsilon", with(&text, "first", "90000")),
        ("a window that wraps around the numbers", with(&text, "first", "9223372036854775807")),
        ("a grid from nowhere", sealed(&swap(",0,", ",-9223372036854775808,"))),
        ("one direction only", sealed(&format!("{}],\"seal\":\"\"}}", text.split("},{\"width\"").next().unwrap().to_owned() + "}"))),
        ("no proof", sealed(&format!("{}\"proofs\":[],\"seal\":\"\"}}", text.split("\"proofs\":").next().unwrap()))),
        ("another format", sealed(&swap("certificate-1", "certificate-2"))),
        ("a hash that is none", sealed(&swap("\"binding\":null", "\"binding\":[\"a\",\"b\",\"c\"]"))),
        ("a seal in capitals", text.replacen(&text[text.len() - 66..], &text[text.len() - 66..].to_uppercase(), 1)),
        ("nothing", String::new()),
    ];
    assert!(nasty.len() >= 20);
    for (what, changed) in nasty {
        assert!(verify(changed.as_bytes()).is_err(), "{what}: {changed}");
    }
    // What it says of itself is true: the claim fails by the claim, not by its form.
    assert!(matches!(verify(with(&text, "epsilon", &beyond).as_bytes()), Err(Refusal::Claim(_))));
}

/// A certificate that is bound says so; one whose binding was changed is another certificate.
#[test]
fn a_binding_is_under_the_seal() {
    let text = named("gaussian");
    let hash = |digit: &str| format!("\"{}\"", digit.repeat(64));
    let bound = text.replacen("\"binding\":null", &format!("\"binding\":[{},{},{}]", hash("a"), hash("0"), hash("7")), 1);
    assert!(verify(bound.as_bytes()).is_err());
    let bound = sealed(&bound);
    assert_eq!(verify(bound.as_bytes()).unwrap().binding.unwrap()[1], "0".repeat(64));
    assert!(verify(bound.replacen('7', "8", 1).as_bytes()).is_err());
}

/// Discrete noise that is accounted as continuous: an addition to δ, for scales from 2^20 on.
#[test]
fn fine_discrete_noise_costs_an_addition() {
    let text = named("poisson");
    let fine = |scale: u64, squared: u128, excess: u64, shares: u32, numbers: u32| {
        let noise = format!("\"fine_discrete_gaussian\":[{scale},{squared},{excess},{shares},{numbers}]");
        verify(sealed(&text.replacen("\"gaussian\":2.0", &noise, 1)).as_bytes())
    };
    // s = 2^21 and a squared bound of 2^40 are a noise multiplier of 2, less a share of 1e-13.
    fine(1 << 21, 1 << 40, 0, 1, 100).unwrap();
    // So are four shares of half that noise, and a bound of which a part is rounding.
    fine(1 << 20, 1 << 40, 0, 4, 100).unwrap();
    fine(1 << 21, (1 << 40) - (1 << 21) + 1, 1, 1, 100).unwrap();
    // A shorter bound is no worse; a longer one, and fewer shares, are.
    fine(1 << 21, 1 << 39, 0, 1, 100).unwrap();
    for (scale, squared, excess, shares) in
        [(1 << 21, 1 << 41, 0, 1), (1 << 21, 1 << 40, 1 << 15, 1), (1 << 20, 1 << 40, 0, 3), ((1 << 21) - 100, 1 << 40, 0, 1)]
    {
        let refused = fine(scale, squared, excess, shares, 100);
        assert!(refused.is_err(), "{scale} {squared} {excess} {shares}");
    }
    // A coarse lattice, nothing released, no share, more numbers than the proof covers, and a sensitivity beyond it.
    assert!(fine((1 << 20) - 1, 1 << 40, 0, 4, 100).is_err());
    assert!(fine(1 << 21, 1 << 40, 0, 1, 0).is_err());
    assert!(fine(1 << 21, 1 << 40, 0, 0, 100).is_err());
    assert!(fine(1 << 21, 1 << 40, 0, 1, u32::MAX).is_err());
    assert!(fine(1 << 21, u128::MAX, u64::MAX, 1, 100).is_err());
    // The addition counts: where nothing is sampled, next to nothing of δ is left for it.
    let text = named("gaussian");
    let released = |numbers: u32| {
        // The same noise multiplier, on a lattice.
        let noise = format!("\"fine_discrete_gaussian\":[{},{},0,1,{numbers}]", 20u64 << 21, 1u64 << 42);
        verify(sealed(&text.replacen("\"gaussian\":20.0", &noise, 1)).as_bytes())
    };
    released(100).unwrap();
    assert!(matches!(released(1 << 28), Err(Refusal::Claim(_))));
}

/// The places of all numbers of a text.
fn numbers(text: &str) -> Vec<(usize, usize)> {
    let bytes = text.as_bytes();
    let digit = |at: usize| matches!(bytes[at], b'0'..=b'9' | b'.' | b'-' | b'e');
    let starts = (1..bytes.len()).filter(|&at| digit(at) && matches!(bytes[at - 1], b':' | b'[' | b','));
    starts.map(|at| (at, (at..bytes.len()).find(|&end| !digit(end)).unwrap())).collect()
}

/// Whatever numbers the hints are, the answer is an error or a proof: nothing overflows, and no false claim is accepted.
#[test]
fn extreme_hints_are_answered() {
    let extremes = [
        "0",
        "-1",
        "1",
        "0.0",
        "1.0",
        "1e300",
        "-1e300",
        "1e-300",
        "1e-12",
        "1e9",
        "0.5",
        "-0.5",
        "1000000000.0",
        "9223372036854775807",
        "-9223372036854775808",
        "18446744073709551615",
        "1099511627775",
        "-1099511627775",
        "39",
        "40",
        "63",
        "64",
        "16",
        "-700.0",
        "700.0",
    ];
    let mut random = Random(0x1234_5678_9ABC_DEF1);
    for name in ["poisson-replace", "lattice", "fixed-batch", "poisson", "mixed"] {
        let text = named(name);
        let below = with(&text, "epsilon", &format!("{}", number(&text, "epsilon") * 0.998));
        for _ in 0..120 {
            let mut changed = below.clone();
            for _ in 0..1 + random.below(2) {
                let start = changed.find("\"proofs\"").unwrap();
                let places: Vec<_> =
                    numbers(&changed).into_iter().filter(|place| place.0 > start && place.1 < changed.len() - 70).collect();
                let (from, to) = places[random.below(places.len())];
                changed.replace_range(from..to, extremes[random.below(extremes.len())]);
            }
            assert!(verify(sealed(&changed).as_bytes()).is_err(), "{name}: {changed}");
        }
    }
}
