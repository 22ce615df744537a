"""Writes one table by every writer that is installed, in every form that the writer has, into a folder; `common/data/tests/data/conformance.rs` reads them.

    python write.py FOLDER [--small]

`same-*`     the same table: every file is read to the same bits.
`refused-T-*` the table with one column of the type T (a name of `dp_pvi_data::types::CellType`): refused in that type's words.
`twice-*`    two columns of one name: refused.

With --small only what stands in the tree, beside this script: some of each kind, without a date of writing.
"""

import datetime as D
import decimal
import os
import sys
import unicodedata
import uuid
from zoneinfo import ZoneInfo

folder = sys.argv[1]
small = "--small" in sys.argv
os.makedirs(folder, exist_ok=True)
made = []


def at(name):
    made.append(name)
    return os.path.join(folder, name)


# The table. None is a missing value; `note` has none at all.
ROWS = 5
PATIENT = [12, 100000, 7, 12, 18446744073]
AGE = [50.5, None, 71.0, 0.1, 1e-3]
WEIGHT = [0.1, 72.3, None, 1.0, 3.25]  # single precision
COST = ["50.25", "0.00", "-3.10", None, "1234567.89"]
WARD = ["Gynäkologie", "surgery", None, "Gynäkologie", "3"]
SMOKER = [True, False, None, True, False]
SEEN = [D.date(2024, 5, 17), D.date(1969, 12, 31), None, D.date(2024, 2, 29), D.date(2000, 1, 1)]
LEFT = [D.datetime(2024, 5, 17, 8, 30), D.datetime(1969, 12, 31, 23, 59, 59), None, D.datetime(2024, 2, 29), D.datetime(2000, 1, 1, 12, 0, 0, 250000)]
STAYS = [1, 2, None, 4, 5]
DIED = ["yes", "no", "no", "yes", "no"]
NAMES = ["patient", "âge", "weight", "cost", "ward", "smoker", "seen", "left", "stays", "note", "died"]


def decimals():
    return [None if text is None else decimal.Decimal(text) for text in COST]


def pyarrow_table(pa, **other):
    columns = {
        "patient": pa.array(PATIENT, pa.int64()),
        "âge": pa.array(AGE, pa.float64()),
        "weight": pa.array(WEIGHT, pa.float32()),
        "cost": pa.array(decimals(), pa.decimal128(10, 2)),
        "ward": pa.array(WARD, pa.string()),
        "smoker": pa.array(SMOKER, pa.bool_()),
        "seen": pa.array(SEEN, pa.date32()),
        "left": pa.array(LEFT, pa.timestamp("us")),
        "stays": pa.array(STAYS, pa.int32()),
        "note": pa.nulls(ROWS),
        "died": pa.array(DIED, pa.string()),
    }
    columns.update(other)
    return pa.table(columns)


def of_pyarrow(pa, pq):
    def write(name, table, **options):
        # A file of the tree keeps no version of the writer.
        pq.write_table(table, at(name), **options)

    write("same-pyarrow.parquet", pyarrow_table(pa))
    for codec in ["none", "gzip", "brotli", "lz4", "zstd"]:
        write(f"same-pyarrow-{codec}.parquet", pyarrow_table(pa), compression=codec)
    parts = {letters: unicodedata.normalize("NFD", letters) for letters in ["Gynäkologie", "âge"]}
    padded = [None if ward is None else f"  {parts.get(ward, ward)}\u00a0 " for ward in WARD]
    written = pyarrow_table(pa, ward=pa.array(padded), patient=pa.array([f"{number}.0  " for number in PATIENT]))
    names = ["\ufeff patient"] + [parts.get(name, name) for name in NAMES[1:]]
    write("same-pyarrow-padded.parquet", written.rename_columns(names))
    floats = pyarrow_table(pa, patient=pa.array([float(number) for number in PATIENT]), stays=pa.array([None if n is None else float(n) for n in STAYS]))
    write("same-pyarrow-floats.parquet", floats, row_group_size=2)
    # As the client writes the answer of PostgreSQL: every cell is the text that the database shows.
    texts = {name: column.cast(pa.string()) for name, column in zip(NAMES, pyarrow_table(pa).itercolumns()) if name not in ["smoker", "left"]}
    texts["smoker"] = pa.array([None if smoker is None else str(smoker).lower() for smoker in SMOKER])
    texts["left"] = pa.array([None if left is None else left.isoformat(" ").rstrip("0").rstrip(":").rstrip(".") if left.microsecond else left.isoformat(" ") for left in LEFT])
    texts["âge"] = pa.array([None if age is None else repr(age) for age in AGE])
    texts["weight"] = pa.array([None if weight is None else repr(weight) for weight in WEIGHT])
    write("same-postgresql.parquet", pyarrow_table(pa, **texts))
    if not small:
        write("same-pyarrow-page2.parquet", pyarrow_table(pa), data_page_version="2.0", use_dictionary=False)
        write("same-pyarrow-version1.parquet", pyarrow_table(pa), version="1.0")
        write("same-pyarrow-decimals.parquet", pyarrow_table(pa), store_decimal_as_integer=True)
        write("same-pyarrow-millis.parquet", pyarrow_table(pa, left=pa.array(LEFT, pa.timestamp("ms"))))
        write("same-pyarrow-nanos.parquet", pyarrow_table(pa, left=pa.array(LEFT, pa.timestamp("ns"))))
        write("same-pyarrow-unsigned.parquet", pyarrow_table(pa, patient=pa.array(PATIENT, pa.uint64()), stays=pa.array(STAYS, pa.uint8())))
        write("same-pyarrow-large.parquet", pyarrow_table(pa, ward=pa.array(WARD, pa.large_string()), died=pa.array(DIED).dictionary_encode()))
        write("same-pyarrow-wide.parquet", pyarrow_table(pa, cost=pa.array(decimals(), pa.decimal256(38, 2))))
        write("same-pyarrow-binary.parquet", pyarrow_table(pa, ward=pa.array([None if ward is None else ward.encode() for ward in WARD], pa.binary())))
        write("same-pyarrow-date64.parquet", pyarrow_table(pa, seen=pa.array(SEEN, pa.date64())))
    zoned = [None if left is None else left.replace(tzinfo=ZoneInfo("Europe/Berlin")) for left in LEFT]
    refused = {
        "ZonedTime": pa.array(zoned, pa.timestamp("us", tz="Europe/Berlin")),
        "Duration": pa.array([D.timedelta(days=1)] * ROWS, pa.duration("us")),
        "TimeOfDay": pa.array([D.time(8, 30)] * ROWS, pa.time64("us")),
        "Nested": pa.array([[1.0]] * ROWS, pa.list_(pa.float64())),
        "Half": pa.array([1.0] * ROWS, pa.float16()),
        "Bytes": pa.array([b"ab"] * ROWS, pa.binary(2)),
        "LongDecimal": pa.array([decimal.Decimal(1)] * ROWS, pa.decimal256(40, 0)),
    }
    for kind, column in refused.items():
        write(f"refused-{kind}-pyarrow.parquet", pyarrow_table(pa, stays=column))
    write("refused-OldTime-pyarrow.parquet", pyarrow_table(pa), use_deprecated_int96_timestamps=True)
    columns = list(pyarrow_table(pa).itercolumns())
    write("twice-pyarrow.parquet", pa.Table.from_arrays([*columns, columns[8]], names=[*NAMES, "stays"]))
    write("twice-pyarrow-beside.parquet", pa.Table.from_arrays([*columns[:9], columns[8], *columns[9:]], names=[*NAMES[:9], "stays", *NAMES[9:]]))


def of_pandas(pd):
    def frame():
        table = pd.DataFrame(
            {
                "patient": PATIENT,
                "âge": AGE,
                "weight": pd.array(WEIGHT, "Float32"),
                "cost": decimals(),
                "ward": WARD,
                "smoker": SMOKER,
                "seen": SEEN,
                "left": pd.to_datetime(pd.Series(LEFT), format="ISO8601"),
                "stays": [None if n is None else float(n) for n in STAYS],
                "note": [None] * ROWS,
                "died": DIED,
            }
        )
        return table

    frame().to_csv(at("same-pandas.csv"), index=False)
    frame().to_csv(at("same-pandas-sig.csv"), index=False, encoding="utf-8-sig", quoting=1)
    frame().to_parquet(at("same-pandas.parquet"), index=False)
    lengths = frame()
    lengths["stays"] = pd.to_timedelta([1.0] * ROWS, unit="D")
    lengths.to_parquet(at("refused-Duration-pandas.parquet"), index=False)
    if not small:
        table = frame().convert_dtypes()
        table.to_parquet(at("same-pandas-nullable.parquet"), index=False)
        floats = frame()
        floats["patient"] = floats["patient"].astype(float)
        floats.to_csv(at("same-pandas-floats.csv"), index=False)
        zoned = frame()
        zoned["left"] = zoned["left"].dt.tz_localize("Europe/Berlin")
        zoned.to_parquet(at("refused-ZonedTime-pandas.parquet"), index=False)


def of_polars(pl):
    table = pl.DataFrame(
        {
            "patient": PATIENT,
            "âge": AGE,
            "weight": pl.Series(WEIGHT, dtype=pl.Float32),
            "cost": pl.Series(decimals(), dtype=pl.Decimal(10, 2)),
            "ward": pl.Series(WARD, dtype=pl.Categorical),
            "smoker": SMOKER,
            "seen": SEEN,
            "left": pl.Series(LEFT, dtype=pl.Datetime("us")),
            "stays": pl.Series(STAYS, dtype=pl.Int16),
            "note": pl.Series([None] * ROWS, dtype=pl.Null),
            "died": DIED,
        }
    )
    table.write_csv(at("same-polars.csv"))
    table.write_parquet(at("same-polars.parquet"))
    lengths = table.with_columns(stays=pl.duration(days=pl.Series([1] * ROWS)))
    lengths.write_parquet(at("refused-Duration-polars.parquet"))
    if not small:
        for codec in ["uncompressed", "snappy", "gzip", "brotli", "lz4"]:
            table.write_parquet(at(f"same-polars-{codec}.parquet"), compression=codec)
        table.with_columns(left=pl.col("left").dt.replace_time_zone("Europe/Berlin")).write_parquet(at("refused-ZonedTime-polars.parquet"))
        table.with_columns(stays=pl.lit(D.time(8, 30))).write_parquet(at("refused-TimeOfDay-polars.parquet"))


def of_duckdb(duckdb):
    connection = duckdb.connect()

    def literal(value):
        if value is None:
            return "NULL"
        if isinstance(value, bool | int | float):
            return str(value)
        return f"'{value}'"

    types = ["BIGINT", "DOUBLE", "FLOAT", "DECIMAL(10,2)", "VARCHAR", "BOOLEAN", "DATE", "TIMESTAMP", "SMALLINT", "DOUBLE", "VARCHAR"]
    rows = zip(PATIENT, AGE, WEIGHT, COST, WARD, SMOKER, SEEN, LEFT, STAYS, [None] * ROWS, DIED)
    columns = ", ".join(f'"{name}" {kind}' for name, kind in zip(NAMES, types))
    connection.execute(f"CREATE TABLE cohort ({columns})")
    for row in rows:
        connection.execute(f"INSERT INTO cohort VALUES ({', '.join(map(literal, row))})")

    def write(name, query="cohort", options=""):
        source = query if query == "cohort" else f"({query})"
        connection.execute(f"COPY {source} TO '{at(name)}' ({options})")

    write("same-duckdb.csv", options="HEADER")
    write("same-duckdb.parquet", options="FORMAT parquet")

    def refused(kind, value):
        write(f"refused-{kind}-duckdb.parquet", f"SELECT * REPLACE ({value} AS stays) FROM cohort", "FORMAT parquet")

    refused("Duration", "INTERVAL 1 DAY")
    refused("Json", """'{"a": 1}'::JSON""")
    if not small:
        for codec in ["uncompressed", "gzip", "zstd", "brotli", "lz4_raw"]:
            write(f"same-duckdb-{codec}.parquet", options=f"FORMAT parquet, CODEC '{codec}'")
        refused("ZonedTime", "TIMESTAMPTZ '2024-05-17 08:30:00+02'")
        refused("TimeOfDay", "TIME '08:30:00'")
        refused("Nested", "[1, 2]")


def of_fastparquet(fastparquet, pd):
    table = pd.DataFrame(
        {
            "patient": PATIENT,
            "âge": AGE,
            "weight": pd.Series(WEIGHT, dtype="float32"),
            "cost": [None if text is None else float(text) for text in COST],
            "ward": WARD,
            "smoker": pd.array(SMOKER, "boolean"),
            # Of seconds, which pandas makes of dates, fastparquet writes other times.
            "seen": pd.to_datetime(pd.Series(SEEN)).astype("datetime64[us]"),
            "left": pd.to_datetime(pd.Series(LEFT), format="ISO8601"),
            "stays": pd.array(STAYS, "Int32"),
            "note": pd.Series([None] * ROWS, dtype=float),
            "died": DIED,
        }
    )
    fastparquet.write(at("same-fastparquet.parquet"), table, write_index=False)
    if not small:
        fastparquet.write(at("same-fastparquet-gzip.parquet"), table, write_index=False, compression="GZIP")
        fastparquet.write(at("refused-OldTime-fastparquet.parquet"), table, write_index=False, times="int96")


def installed(*names):
    modules = []
    for name in names:
        try:
            modules.append(__import__(name, fromlist=["x"]))
        except ImportError:
            print(f"not installed, not tried: {name}")
            return None
    return modules


for write, names in [
    (of_pyarrow, ["pyarrow", "pyarrow.parquet"]),
    (of_pandas, ["pandas"]),
    (of_polars, ["polars"]),
    (of_duckdb, ["duckdb"]),
    (of_fastparquet, ["fastparquet", "pandas"]),
]:
    modules = installed(*names)
    if modules:
        write(*modules)
print(f"{len(made)} files")
