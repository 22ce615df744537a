//! Redacts panics of code that handles private values: no message or payload leaves without a charge.
//!
//! A panic carries a payload, and the process prints its message before the stack is unwound. Both may hold a record: a failed
//! `assert_eq!` shows what it compared, an index out of bounds shows a length, and `panic_any` carries whatever it is given. So code
//! behind the gate runs within `redact_panics`: the hook prints the place of the panic in the source and no message, and the payload
//! is thrown away unread, without running its destructor.
//!
//! *Whether* code panics is one bit about the records, too. So a panic never leaves the gate as an error, and a sum that it stops still has its noise:
//!
//! * Over one unit's term, in a sum term by term or of a batch, that unit counts as zero and all others as before. This is within what is charged.
//! * In a function over a whole table or over private state, the result is a [`Sensitive`](crate::Sensitive) without a value. Later functions of it are
//!   not called, and a sum that depends on it is noise alone. That is a change of *every* term, for which no one charges. So such a function must not
//!   panic on account of a record: a promise of the method, which no type holds.
//!
//! [`PanicRedacted`] is an error only where no record was looked at, or where nothing is protected.
//!
//! What ends the whole process (an abort, a panic within a panic, no memory) is seen by everyone, and so is a panic hook that someone sets
//! after the first call: no type bars these, and a lint bars hooks from the crates that see records.

use std::cell::Cell;
use std::io::Write as _;
use std::mem::needs_drop;
use std::ops::Deref;
use std::panic::{AssertUnwindSafe, catch_unwind, set_hook, take_hook};
use std::sync::Once;

/// Code behind the gate panicked, before it saw a record or where nothing is protected. What it said is gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "a computation over private values ended in a panic, whose message is withheld: report this as a bug, with the place that was printed"
)]
pub struct PanicRedacted;

thread_local! {
    /// How many calls of `redact_panics` this thread is in.
    static DEPTH: Cell<u32> = const { Cell::new(0) };
}

static HOOK: Once = Once::new();

/// Runs `f`, and answers [`PanicRedacted`] if it panics: no payload comes out, and no message is printed. For this crate alone: the answer is
/// one bit about what `f` looked at.
///
/// It holds for the thread that calls it. Code over records starts no threads (a lint bars them from `inference`); where a sum is split over threads, each of them
/// calls this itself.
///
/// # Errors
/// `f` panicked.
pub(crate) fn redact_panics<R>(f: impl FnOnce() -> R) -> Result<R, PanicRedacted> {
    // A hook cannot be changed by a thread that panics already; then it was set before, or the process is ending.
    if !std::thread::panicking() {
        HOOK.call_once(print_no_message);
    }
    let within = Within::enter();
    // What `f` had borrowed is not looked at again, or is ours and whole after every statement.
    let result = catch_unwind(AssertUnwindSafe(f));
    drop(within);
    result.map_err(|payload| {
        // Its destructor is foreign code, and could panic with another payload.
        std::mem::forget(payload);
        PanicRedacted
    })
}

/// A value that functions over private values made, or could write to. What its destructor says in a panic is withheld: it is foreign code, which
/// runs where the value ends, and that is outside of the function that made it.
pub(crate) struct Kept<T>(Option<T>);

impl<T> Kept<T> {
    pub(crate) const fn new(value: T) -> Self {
        Self(Some(value))
    }

    pub(crate) fn into_inner(mut self) -> T {
        match self.0.take() {
            Some(value) => value,
            None => unreachable!("only this method, which takes the whole, and the destructor leave it empty"),
        }
    }
}

impl<T> Deref for Kept<T> {
    type Target = T;

    fn deref(&self) -> &T {
        match &self.0 {
            Some(value) => value,
            None => unreachable!("only what ends it leaves it empty"),
        }
    }
}

impl<T> Drop for Kept<T> {
    fn drop(&mut self) {
        if needs_drop::<T>()
            && let Some(value) = self.0.take()
        {
            // No one is told that it panicked: that could depend on a record.
            let _ = redact_panics(|| drop(value));
        }
    }
}

/// From here on a panic on this thread prints its place only.
struct Within;

impl Within {
    fn enter() -> Self {
        DEPTH.with(|depth| depth.set(depth.get() + 1));
        Self
    }
}

impl Drop for Within {
    fn drop(&mut self) {
        DEPTH.with(|depth| depth.set(depth.get() - 1));
    }
}

/// Puts a hook before the one that is there: inside the gate it prints the place alone.
fn print_no_message() {
    let before = take_hook();
    set_hook(Box::new(move |panic| {
        // A thread that is being taken down has no depth any more, and no code over records runs on it.
        if DEPTH.try_with(Cell::get).unwrap_or(0) == 0 {
            before(panic);
        } else if let Some(place) = panic.location() {
            // A panic inside of a hook would end the program.
            let (file, line) = (place.file(), place.line());
            let _ = writeln!(std::io::stderr(), "a computation over private values panicked at {file}:{line}; its message is withheld");
        }
    }));
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind, panic_any};

    use super::*;
    use crate::records::{Argument, Sensitive};

    /// A payload that panics again when it is dropped.
    struct Bomb(#[allow(dead_code, reason = "it is what would come out")] Vec<f64>);

    impl Drop for Bomb {
        fn drop(&mut self) {
            panic_any(self.0.clone());
        }
    }

    #[test]
    fn a_panic_carries_nothing_out() {
        assert_eq!(redact_panics(|| 3), Ok(3));
        assert_eq!(redact_panics(|| panic_any(vec![70.01])), Err::<(), _>(PanicRedacted));
        assert_eq!(redact_panics(|| panic_any(Bomb(vec![70.01]))), Err::<(), _>(PanicRedacted));
        let private = Sensitive::constant(&vec![70.01]).unwrap();
        let nothing = Argument::nothing();
        let quiet = |f: fn(&(), &Vec<f64>)| catch_unwind(AssertUnwindSafe(|| private.map(&nothing, f))).is_ok_and(|made| made.0.is_none());
        assert!(quiet(|(), values| panic_any(values.clone())));
        assert!(quiet(|(), values| panic!("{values:?}")));
        assert!(quiet(|(), values| std::panic::resume_unwind(Box::new(values.clone()))));
        assert_eq!(DEPTH.with(Cell::get), 0);
    }

    /// What a function over records made, or wrote into its argument, ends outside of it: its destructor throws and prints nothing.
    #[test]
    fn a_destructor_carries_nothing_out() {
        #[derive(serde::Serialize, serde::Deserialize)]
        struct Leaky(std::cell::RefCell<Vec<f64>>);
        impl Drop for Leaky {
            fn drop(&mut self) {
                if !self.0.borrow().is_empty() {
                    panic_any(self.0.borrow().clone());
                }
            }
        }
        let private = Sensitive::constant(&vec![70.01]).unwrap();
        let made = private.map(&Argument::nothing(), |(), values| Bomb(values.clone()));
        assert!(catch_unwind(AssertUnwindSafe(|| drop(made))).is_ok());
        let argument = Argument::copy_of(&Leaky(Vec::new().into())).unwrap();
        let other = argument.and(&Argument::nothing());
        drop(private.map(&other, |(leaky, _), values| leaky.0.borrow_mut().extend(values)));
        assert!(catch_unwind(AssertUnwindSafe(|| drop(argument))).is_ok());
        assert!(catch_unwind(AssertUnwindSafe(|| drop(other))).is_ok());
        let made = private.map(&Argument::nothing(), |(), values| Bomb(values.clone()));
        let unwound = catch_unwind(AssertUnwindSafe(|| {
            let _made = made;
            panic_any(3u8)
        }));
        assert!(unwound.is_err_and(|payload| payload.is::<u8>()));
        assert_eq!(DEPTH.with(Cell::get), 0);
    }
}
