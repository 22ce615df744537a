//! What an operator does with a run.

use super::run::Phase;
use super::{Control, Coordinator, Durable, Record};
use crate::message::RunOutcome;
use crate::time::Timestamp;

impl Coordinator {
    /// An operator pauses or resumes the run.
    pub fn control(&mut self, control: Control, now: Timestamp) -> Durable<()> {
        let records = if self.run.control == control { Vec::new() } else { vec![Record::Control { control, at: now }] };
        self.durable(records, ())
    }

    /// An operator ends the run now; an open round is aborted.
    pub fn stop(&mut self, now: Timestamp) -> Durable<()> {
        let mut records = Vec::new();
        match &self.run.phase {
            Phase::Ended(_) => {}
            Phase::New(_) => records.push(Record::RunOpened { run: self.run.id, task: self.settings.task.clone(), at: now }),
            Phase::Open(open) => records.push(self.aborted(open, now)),
            Phase::Gathering(_) | Phase::Between(_) => {}
        }
        records.iter().for_each(|record| self.run.apply(record));
        if !matches!(self.run.phase, Phase::Ended(_)) {
            let end = self.end(RunOutcome::Stopped, now);
            self.run.apply(&end);
            records.push(end);
        }
        Durable { records, then: () }
    }

    /// Whether an operator paused the run. A round that was open then is still collected; no other opens.
    #[must_use]
    pub fn is_paused(&self) -> bool {
        self.run.control == Control::Paused && !matches!(self.run.phase, Phase::Ended(_))
    }
}
