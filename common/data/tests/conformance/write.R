# Writes the table of write.py by R itself and, where it is installed, by data.table: Rscript write.R FOLDER
folder <- commandArgs(trailingOnly = TRUE)[1]
at <- function(name) file.path(folder, name)
rows <- data.frame(
  patient = c(12, 100000, 7, 12, 18446744073),
  age = c(50.5, NA, 71, 0.1, 1e-3),
  weight = c(0.1, 72.3, NA, 1, 3.25),
  cost = c(50.25, 0, -3.1, NA, 1234567.89),
  ward = c("Gyn\u00e4kologie", "surgery", NA, "Gyn\u00e4kologie", "3"),
  smoker = c(TRUE, FALSE, NA, TRUE, FALSE),
  seen = as.Date(c("2024-05-17", "1969-12-31", NA, "2024-02-29", "2000-01-01")),
  left = as.POSIXct(c("2024-05-17 08:30:00", "1969-12-31 23:59:59", NA, "2024-02-29 00:00:00", "2000-01-01 12:00:00"), tz = "UTC"),
  stays = c(1L, 2L, NA, 4L, 5L),
  note = NA,
  died = c("yes", "no", "no", "yes", "no")
)
names(rows)[2] <- "\u00e2ge"
write.csv(rows, at("same-r.csv"), row.names = FALSE, fileEncoding = "UTF-8")
write.table(rows, at("same-r-bare.csv"), sep = ",", quote = FALSE, na = "", row.names = FALSE, fileEncoding = "UTF-8")
if (requireNamespace("data.table", quietly = TRUE)) {
  data.table::fwrite(rows, at("same-datatable.csv"), dateTimeAs = "write.csv")
  data.table::fwrite(rows, at("same-datatable-quoted.csv"), dateTimeAs = "write.csv", quote = TRUE, bom = TRUE, na = "NA", scipen = 99)
} else {
  cat("data.table is not installed: its files were not read\n")
}
