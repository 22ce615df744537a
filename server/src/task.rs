//! From `task.toml` and the schema's text to the one document whose hash everyone signs.

use std::path::Path;

use dp_pvi_posterior::task::{RawTask, ResolveContext, ResolvedTask};
use dp_pvi_programs::files::read_text;
use dp_pvi_programs::outputs;
use dp_pvi_programs::problem::Problem;
use dp_pvi_protocol::aggregation;
use dp_pvi_results::forecast::rounds;
use dp_pvi_results::forecast::rounds::Resolved;
use dp_pvi_results::forecast::worthless;
use dp_pvi_schema::Schema;

use crate::config::Config;
use crate::error::{Result, ServerError};

/// Resolves the configured task.
///
/// # Errors
/// [`ServerError::File`] with the file that is missing or wrong.
pub fn resolve_task(config: &Config) -> Result<ResolvedTask> {
    resolve_with_rounds(config).map(|resolved| resolved.task)
}

/// The same, and how its number of rounds was chosen.
///
/// # Errors
/// As [`resolve_task`].
pub(crate) fn resolve_with_rounds(config: &Config) -> Result<Resolved> {
    let text = read_text(&config.task).map_err(|e| ServerError::file(&config.task, format!("{e}; [task] file names it")))?;
    let raw = RawTask::parse(&text).map_err(|e| ServerError::file(&config.task, e))?;
    let schema_path = config.beside_task(&raw.schema.file);
    let schema =
        read_text(&schema_path).map_err(|e| ServerError::file(&schema_path, format!("{e}; [schema] file of the task names it")))?;
    Schema::parse(&schema).map_err(|e| ServerError::file(&schema_path, e))?;
    let context = ResolveContext {
        name: &config.federation,
        update_deadline_seconds: config.phases.update_deadline.as_secs(),
        min_sites: config.phases.min_sites,
        expected_sites: config.phases.max_sites,
    };
    let resolved = rounds::resolve(&raw, &schema, context).map_err(|e| ServerError::file(&config.task, e))?;
    sums_fit(&resolved.task).map_err(|problem| ServerError::file(&config.task, problem))?;
    match worthless(raw.pvi.expected_units, &resolved.task) {
        Some(why) => Err(ServerError::file(&config.task, why)),
        None => Ok(resolved),
    }
}

/// Refuses an output in the place of what the server needs.
///
/// # Errors
/// Which file it is.
pub(crate) fn refuse_to_overwrite(output: &Path) -> Result<()> {
    outputs::refuse(output).map_err(|e| ServerError::Usage(Problem::said(format!("{}: {e}", output.display()), e)))
}

/// Whether the secure sums of an aggregated task can be planned: the charter would be refused only when everyone has joined.
fn sums_fit(task: &ResolvedTask) -> std::result::Result<(), Problem> {
    let Some(spec) = &task.aggregation else { return Ok(()) };
    let plans = aggregation::plans(task, spec).map_err(Problem::of)?;
    plans.iter().try_for_each(|(request, _)| request.plan().map(|_| ()).map_err(Problem::of))
}
