//! A single-threaded executor with virtual time. Nothing here reads a clock: when no task can run, time jumps to the next
//! timer. The same tasks give the same order of events, always.

use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use dp_pvi_protocol::driver::Clock;
use dp_pvi_protocol::time::Timestamp;

/// Start of virtual time: 2026-01-01T00:00:00Z.
const EPOCH: u64 = 1_767_225_600_000;

type Task = Pin<Box<dyn Future<Output = ()>>>;

/// Virtual time and the tasks that live in it. Cheap to clone; all clones are the same world.
#[derive(Clone)]
pub struct Executor {
    inner: Rc<RefCell<Inner>>,
    ready: Arc<Ready>,
}

struct Inner {
    now: u64,
    /// Timers by time and order of creation.
    timers: BTreeMap<(u64, u64), Waker>,
    created: u64,
    tasks: BTreeMap<u64, Task>,
    spawned: u64,
}

/// Tasks that can go on, in the order in which they were woken.
#[derive(Default)]
struct Ready(Mutex<VecDeque<u64>>);

impl Ready {
    fn push(&self, task: u64) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push_back(task);
    }

    fn pop(&self) -> Option<u64> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).pop_front()
    }
}

struct Wakes {
    task: u64,
    ready: Arc<Ready>,
}

impl Wake for Wakes {
    fn wake(self: Arc<Self>) {
        self.ready.push(self.task);
    }
}

impl Default for Executor {
    fn default() -> Self {
        let inner = Inner { now: EPOCH, timers: BTreeMap::new(), created: 0, tasks: BTreeMap::new(), spawned: 0 };
        Self { inner: Rc::new(RefCell::new(inner)), ready: Arc::default() }
    }
}

impl Executor {
    /// Adds a task.
    pub fn spawn(&self, task: impl Future<Output = ()> + 'static) {
        let mut inner = self.inner.borrow_mut();
        let id = inner.spawned;
        inner.spawned += 1;
        inner.tasks.insert(id, Box::pin(task));
        self.ready.push(id);
    }

    /// Runs until `done` says so, all tasks have ended, or `limit` of virtual time has passed since the start.
    pub fn run(&self, limit: Duration, mut done: impl FnMut() -> bool) -> Stopped {
        let end = Timestamp::from_millis(EPOCH).plus(limit).as_millis();
        loop {
            while let Some(id) = self.ready.pop() {
                self.poll(id);
                if done() {
                    return Stopped::Done;
                }
            }
            let mut inner = self.inner.borrow_mut();
            if inner.tasks.is_empty() {
                return Stopped::Idle;
            }
            let Some(((at, _), waker)) = inner.timers.pop_first() else { return Stopped::Deadlock };
            if at > end {
                return Stopped::OutOfTime;
            }
            inner.now = inner.now.max(at);
            drop(inner);
            waker.wake();
        }
    }

    /// Drops all tasks (they hold the executor, and it them).
    pub fn clear(&self) {
        let tasks = std::mem::take(&mut self.inner.borrow_mut().tasks);
        drop(tasks);
        self.inner.borrow_mut().timers.clear();
    }

    fn poll(&self, id: u64) {
        // The task leaves the table while it runs, so that it may spawn others.
        let Some(mut task) = self.inner.borrow_mut().tasks.remove(&id) else { return };
        let waker = Waker::from(Arc::new(Wakes { task: id, ready: Arc::clone(&self.ready) }));
        if task.as_mut().poll(&mut Context::from_waker(&waker)).is_pending() {
            self.inner.borrow_mut().tasks.insert(id, task);
        }
    }
}

/// Why the executor returned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stopped {
    /// The caller's condition holds.
    Done,
    /// All tasks ended.
    Idle,
    /// Tasks wait for something that no timer brings.
    Deadlock,
    /// The limit of virtual time is over.
    OutOfTime,
}

impl Clock for Executor {
    fn now(&self) -> Timestamp {
        Timestamp::from_millis(self.inner.borrow().now)
    }

    async fn sleep(&self, duration: Duration) {
        let at = self.now().plus(duration).as_millis();
        Sleep { executor: self.clone(), at, registered: false }.await;
    }
}

struct Sleep {
    executor: Executor,
    at: u64,
    registered: bool,
}

impl Future for Sleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let executor = self.executor.clone();
        let mut inner = executor.inner.borrow_mut();
        // A sleep of no time still lets the others run.
        if self.registered && inner.now >= self.at {
            return Poll::Ready(());
        }
        let order = inner.created;
        inner.created += 1;
        inner.timers.insert((self.at, order), context.waker().clone());
        self.registered = true;
        Poll::Pending
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_jumps_and_tasks_interleave_by_their_timers() {
        let executor = Executor::default();
        let log = Rc::new(RefCell::new(Vec::new()));
        for (name, pause) in [("slow", 30_u64), ("fast", 20)] {
            let (log, clock) = (Rc::clone(&log), executor.clone());
            executor.spawn(async move {
                for _ in 0..3 {
                    clock.sleep(Duration::from_secs(pause)).await;
                    log.borrow_mut().push((name, clock.now().as_millis() - EPOCH));
                }
            });
        }
        assert_eq!(executor.run(Duration::from_secs(3600), || false), Stopped::Idle);
        assert_eq!(
            *log.borrow(),
            [("fast", 20_000), ("slow", 30_000), ("fast", 40_000), ("slow", 60_000), ("fast", 60_000), ("slow", 90_000)]
        );
    }

    #[test]
    fn a_task_that_never_wakes_is_a_deadlock_and_endless_ones_run_out_of_time() {
        let executor = Executor::default();
        executor.spawn(std::future::pending());
        assert_eq!(executor.run(Duration::from_secs(1), || false), Stopped::Deadlock);
        let clock = executor.clone();
        executor.spawn(async move {
            loop {
                clock.sleep(Duration::from_millis(100)).await;
            }
        });
        assert_eq!(executor.run(Duration::from_secs(1), || false), Stopped::OutOfTime);
    }
}
