//! An executor with virtual time. Nothing here reads a clock: when no task can run, time jumps to the next timer. The same tasks give
//! the same order of events, always.
//!
//! Tasks take turns in one thread. What they compute may run in others ([`Executor::compute`]): it takes a stated virtual time, and time stands
//! still until the result that is due is there. So the number of threads changes nothing.

use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::JoinHandle;
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
    /// Where computations run; absent: here.
    workers: Option<Rc<Workers>>,
}

struct Inner {
    now: u64,
    /// Timers by time and order of creation.
    timers: BTreeMap<(u64, u64), Waker>,
    created: u64,
    tasks: BTreeMap<u64, Task>,
    spawned: u64,
    /// Computations whose results are due, in the order in which they were begun, and who waits for them.
    computations: VecDeque<(Computation, Waker)>,
}

/// Something that is computed for a task.
enum Computation {
    /// When its turn comes.
    Here(Work),
    /// In a thread, which says when it is done.
    Elsewhere(Receiver<()>),
}

type Work = Box<dyn FnOnce() + Send>;

/// Threads that compute. They end with the executor.
struct Workers {
    queue: Option<Sender<Work>>,
    threads: Vec<JoinHandle<()>>,
}

impl Workers {
    fn new(threads: usize) -> Self {
        let (queue, work) = channel::<Work>();
        let work = Arc::new(Mutex::new(work));
        let thread = |_| {
            let work = Arc::clone(&work);
            std::thread::spawn(move || {
                // The lock is held while waiting, and not while working.
                let next = || lock(&work).recv();
                while let Ok(work) = next() {
                    work();
                }
            })
        };
        Self { queue: Some(queue), threads: (0..threads).map(thread).collect() }
    }

    fn start(&self, work: Work) -> Receiver<()> {
        let (done, end) = channel();
        let work = Box::new(move || {
            work();
            // No one waits when the simulation is over.
            let _ = done.send(());
        });
        if let Some(queue) = &self.queue {
            // Threads end before their queue only when a computation panics; then its receiver says so.
            drop(queue.send(work));
        }
        end
    }
}

impl Drop for Workers {
    fn drop(&mut self) {
        self.queue = None;
        for thread in self.threads.drain(..) {
            drop(thread.join());
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Tasks that can go on, in the order in which they were woken.
#[derive(Default)]
struct Ready(Mutex<VecDeque<u64>>);

impl Ready {
    fn push(&self, task: u64) {
        lock(&self.0).push_back(task);
    }

    fn pop(&self) -> Option<u64> {
        lock(&self.0).pop_front()
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
        Self::new(1)
    }
}

impl Executor {
    /// An executor whose computations run in so many threads; one: in the caller's.
    #[must_use]
    pub fn new(threads: usize) -> Self {
        let computations = VecDeque::new();
        let inner = Inner { now: EPOCH, timers: BTreeMap::new(), created: 0, tasks: BTreeMap::new(), spawned: 0, computations };
        let workers = (threads > 1).then(|| Rc::new(Workers::new(threads)));
        Self { inner: Rc::new(RefCell::new(inner)), ready: Arc::default(), workers }
    }

    /// Computes something in so much virtual time, beside what other tasks compute.
    ///
    /// # Panics
    /// In [`Executor::run`], when the computation does.
    pub async fn compute<T: Send + 'static>(&self, time: Duration, computation: impl FnOnce() -> T + Send + 'static) -> T {
        let result = Arc::new(Mutex::new(None));
        let filled = Arc::clone(&result);
        let work: Work = Box::new(move || *lock(&filled) = Some(computation()));
        let computation = match &self.workers {
            None => Computation::Here(work),
            Some(workers) => Computation::Elsewhere(workers.start(work)),
        };
        self.sleep(time).await;
        Computing { executor: self.clone(), computation: Some(computation), result }.await
    }

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
            let computation = self.inner.borrow_mut().computations.pop_front();
            if let Some((computation, waker)) = computation {
                match computation {
                    Computation::Here(work) => work(),
                    // Its thread says so unless the computation panicked, and then so does this.
                    Computation::Elsewhere(done) => done.recv().expect("a computation panicked"),
                }
                waker.wake();
                continue;
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
        let mut inner = self.inner.borrow_mut();
        inner.timers.clear();
        inner.computations.clear();
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

struct Computing<T> {
    executor: Executor,
    /// Not in the executor's queue yet.
    computation: Option<Computation>,
    result: Arc<Mutex<Option<T>>>,
}

impl<T> Future for Computing<T> {
    type Output = T;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<T> {
        if let Some(computation) = self.computation.take() {
            self.executor.inner.borrow_mut().computations.push_back((computation, context.waker().clone()));
            return Poll::Pending;
        }
        // Only the executor wakes it, with the result in its place.
        let result = lock(&self.result).take();
        result.map_or(Poll::Pending, Poll::Ready)
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

    /// Results come when they are due, although the first computation waits for the second.
    #[test]
    fn the_number_of_threads_changes_nothing() {
        let run = |threads| {
            let executor = Executor::new(threads);
            let log = Rc::new(RefCell::new(Vec::new()));
            // The first waits for the second where both run at the same time.
            let (second, first) = channel::<()>();
            let first = Arc::new(Mutex::new(first));
            let clock = executor.clone();
            executor.spawn(async move { clock.sleep(Duration::from_millis(11)).await });
            for number in 0..6 {
                let (log, clock, first, second) = (Rc::clone(&log), executor.clone(), Arc::clone(&first), second.clone());
                executor.spawn(async move {
                    for turn in 0..3 {
                        let (first, second) = (Arc::clone(&first), second.clone());
                        // They begin one after the other, and each before the result of the one before it is due.
                        clock.sleep(Duration::from_millis(number)).await;
                        let square = clock.compute(Duration::from_millis(10), move || {
                            match (number, turn) {
                                (0, 0) if threads > 1 => lock(&first).recv().unwrap(),
                                (1, 0) => second.send(()).unwrap(),
                                _ => {}
                            }
                            number * number
                        });
                        let square = square.await;
                        log.borrow_mut().push((turn, square, clock.now().as_millis() - EPOCH));
                    }
                });
            }
            assert_eq!(executor.run(Duration::from_secs(1), || false), Stopped::Idle);
            log.take()
        };
        let alone = run(1);
        assert_eq!(alone.len(), 18);
        let right = (0..3).flat_map(|turn| (0..6).map(move |number| (turn, number * number, (turn + 1) * (10 + number))));
        assert_eq!(alone, right.collect::<Vec<_>>());
        assert_eq!(run(2), alone);
        assert_eq!(run(4), alone);
    }

    #[test]
    #[should_panic(expected = "a computation panicked")]
    fn a_computation_that_panics_ends_the_run() {
        let executor = Executor::new(2);
        let clock = executor.clone();
        executor.spawn(async move { clock.compute(Duration::ZERO, || panic!("no")).await });
        executor.run(Duration::from_secs(1), || false);
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
