//! What functions of PostgreSQL do, by name.

/// What a function's answer depends on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// Its arguments.
    Plain,
    /// All rows of a group.
    Aggregate,
    /// All rows of a group, in the last bits of floating-point numbers also their order.
    Sum,
    /// All rows of a group, and their order.
    List,
    /// All rows of a window.
    Window,
    /// All rows of a window, and which of two equal ones comes first.
    Row,
    /// Time, chance, or who asks.
    Volatile,
    /// Not known here.
    Unknown,
}

const PLAIN: &[&str] = &[
    "abs",
    "age",
    "cbrt",
    "ceil",
    "ceiling",
    "char_length",
    "character_length",
    "coalesce",
    "concat",
    "concat_ws",
    "date_part",
    "date_trunc",
    "degrees",
    "div",
    "exp",
    "floor",
    "greatest",
    "initcap",
    "isfinite",
    "justify_days",
    "least",
    "left",
    "length",
    "ln",
    "log",
    "log10",
    "lower",
    "lpad",
    "ltrim",
    "make_date",
    "mod",
    "nullif",
    "power",
    "radians",
    "regexp_match",
    "regexp_replace",
    "replace",
    "reverse",
    "right",
    "round",
    "rpad",
    "rtrim",
    "sign",
    "split_part",
    "sqrt",
    "starts_with",
    "strpos",
    "substr",
    "substring",
    "to_char",
    "to_date",
    "to_number",
    "translate",
    "trim",
    "trunc",
    "upper",
    "width_bucket",
];

const AGGREGATES: &[&str] =
    &["bit_and", "bit_or", "bool_and", "bool_or", "count", "every", "max", "min", "mode", "percentile_cont", "percentile_disc"];

const SUMS: &[&str] = &[
    "avg",
    "corr",
    "covar_pop",
    "covar_samp",
    "regr_slope",
    "stddev",
    "stddev_pop",
    "stddev_samp",
    "sum",
    "var_pop",
    "var_samp",
    "variance",
];

const LISTS: &[&str] = &["array_agg", "string_agg"];

const WINDOWS: &[&str] = &["cume_dist", "dense_rank", "percent_rank", "rank"];

const ROWS: &[&str] = &["first_value", "lag", "last_value", "lead", "nth_value", "ntile", "row_number"];

const VOLATILE: &[&str] = &[
    "clock_timestamp",
    "currval",
    "current_date",
    "current_role",
    "current_time",
    "current_timestamp",
    "current_user",
    "dblink",
    "gen_random_bytes",
    "gen_random_uuid",
    "lastval",
    "localtime",
    "localtimestamp",
    "nextval",
    "now",
    "pg_backend_pid",
    "pg_sleep",
    "random",
    "random_normal",
    "session_user",
    "setseed",
    "setval",
    "statement_timestamp",
    "timeofday",
    "transaction_timestamp",
    "txid_current",
    "user",
    "uuid_generate_v1",
    "uuid_generate_v4",
];

/// Those of them that stand without brackets, as a column does.
const BARE: &[&str] =
    &["current_date", "current_role", "current_time", "current_timestamp", "current_user", "localtime", "localtimestamp", "session_user"];

/// Columns of every table that say where a row is stored.
const PHYSICAL: &[&str] = &["cmax", "cmin", "ctid", "tableoid", "xmax", "xmin"];

/// What the function of this name (in small letters, without its schema) depends on.
pub(super) fn kind(name: &str, arguments: usize) -> Kind {
    match name {
        // With one date it asks for today's.
        "age" if arguments < 2 => Kind::Volatile,
        name if VOLATILE.contains(&name) => Kind::Volatile,
        name if PLAIN.contains(&name) => Kind::Plain,
        name if AGGREGATES.contains(&name) => Kind::Aggregate,
        name if SUMS.contains(&name) => Kind::Sum,
        name if LISTS.contains(&name) => Kind::List,
        name if WINDOWS.contains(&name) => Kind::Window,
        name if ROWS.contains(&name) => Kind::Row,
        _ => Kind::Unknown,
    }
}

/// Whether a name without brackets is a function of time, or of who asks.
pub(super) fn bare(name: &str) -> bool {
    BARE.contains(&name)
}

/// Whether a text may mean a moment that passes, when it is read as a date.
pub(super) fn passing(text: &str) -> bool {
    let moving = ["now", "today", "tomorrow", "yesterday"];
    text.split(|letter: char| !letter.is_ascii_alphabetic()).any(|word| moving.contains(&word.to_ascii_lowercase().as_str()))
}

/// Whether a column says where a row is stored.
pub(super) fn physical(column: &str) -> bool {
    PHYSICAL.contains(&column)
}
