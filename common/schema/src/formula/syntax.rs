//! A formula as a tree, read by recursive descent.
//!
//! ```text
//! formula = [ response ] "~" sum
//! response= column | "Surv" "(" column "," column [ "," column ] ")"
//! sum     = [ "+" | "-" ] product { ( "+" | "-" ) product }
//! product = inter { "*" inter }
//! inter   = power { ":" power }
//! power   = atom [ "^" integer ]
//! atom    = "0" | "1" | "." | column | call | "(" sum ")" | "(" sum ( "|" | "||" ) column ")"
//! call    = name "(" argument { "," argument } ")"
//! argument= [ name "=" ] ( value | "[" value { "," value } "]" )
//! value   = number | string | "TRUE" | "FALSE" | column | call
//! ```

use super::FormulaError;
use super::lexer::{Placed, Token, tokens};

/// A read formula.
#[derive(Debug, Clone)]
pub(super) struct Tree {
    pub(super) response: Response,
    pub(super) terms: Node,
}

/// What is predicted.
#[derive(Debug, Clone)]
pub(super) enum Response {
    /// Nothing is before `~`.
    Nothing,
    /// One column.
    Column(Name),
    /// Time and event, or entry, time and event.
    Survival { at: usize, columns: Vec<Name> },
}

/// A column's name and where it stands.
#[derive(Debug, Clone)]
pub(super) struct Name {
    pub(super) text: String,
    pub(super) at: usize,
}

/// An expression and where it begins.
#[derive(Debug, Clone)]
pub(super) struct Node {
    pub(super) at: usize,
    pub(super) kind: Kind,
}

/// What an expression is.
#[derive(Debug, Clone)]
pub(super) enum Kind {
    /// `1` (true) or `0` (false).
    Intercept(bool),
    /// `.`: all columns that the formula does not name before `~` or in an offset.
    Every,
    Column(String),
    Call(Call),
    /// Summands with whether they are taken away.
    Sum(Vec<(bool, Node)>),
    /// `a*b`.
    Crossed(Vec<Node>),
    /// `a:b`.
    Interaction(Vec<Node>),
    /// `a^n`.
    Power(Box<Node>, u32),
    /// `(effects | column)`, or a call in place of the column; `||` means the same.
    Group {
        effects: Box<Node>,
        double: bool,
        by: Variable,
    },
}

/// A column or a call that can be part of a product, or that a group stands over.
#[derive(Debug, Clone)]
pub(super) struct Variable {
    pub(super) at: usize,
    pub(super) what: Called,
}

/// A column that stands bare, or a call.
#[derive(Debug, Clone)]
pub(super) enum Called {
    Column(String),
    Call(Call),
}

/// A call.
#[derive(Debug, Clone)]
pub(super) struct Call {
    pub(super) name: String,
    pub(super) at: usize,
    pub(super) arguments: Vec<Argument>,
}

/// One argument of a call.
#[derive(Debug, Clone)]
pub(super) struct Argument {
    pub(super) at: usize,
    pub(super) name: Option<String>,
    pub(super) value: Value,
}

/// What an argument is.
#[derive(Debug, Clone)]
pub(super) enum Value {
    Number(f64),
    Text(String),
    Truth(bool),
    Column(String),
    Call(Call),
    List(Vec<Value>),
}

/// The largest power that a sum may have.
const LARGEST_POWER: f64 = 8.0;
/// Sums and calls may stand inside each other so deep.
const DEEPEST: usize = 32;

/// Reads a formula.
pub(super) fn parse(text: &str) -> Result<Tree, FormulaError> {
    let mut reader = Reader { text, tokens: tokens(text)?, next: 0, depth: 0 };
    let response = reader.response()?;
    reader.demand("~", "a formula is `outcome ~ terms`")?;
    if matches!(reader.peek(), Token::End) {
        return Err(reader.fail("nothing stands after `~`: write the terms, or `1` for an intercept alone"));
    }
    let terms = reader.sum()?;
    match reader.peek() {
        Token::End => Ok(Tree { response, terms }),
        Token::Sign("|" | "||") => Err(reader.fail("a group stands in parentheses: `(1 | site)`")),
        _ => Err(reader.fail("this does not continue the formula: terms are joined by `+`, `-`, `*`, `:` or `^`")),
    }
}

struct Reader<'t> {
    text: &'t str,
    tokens: Vec<Placed>,
    next: usize,
    depth: usize,
}

impl Reader<'_> {
    fn peek(&self) -> &Token {
        &self.tokens[self.next].token
    }

    fn at(&self) -> usize {
        self.tokens[self.next].at
    }

    /// Takes the next token; the last one stays.
    fn take(&mut self) -> Placed {
        let token = self.tokens[self.next].clone();
        self.next = (self.next + 1).min(self.tokens.len() - 1);
        token
    }

    /// Takes the sign if it comes next.
    fn takes(&mut self, sign: &str) -> bool {
        let is_next = matches!(self.peek(), Token::Sign(next) if *next == sign);
        if is_next {
            self.take();
        }
        is_next
    }

    fn demand(&mut self, sign: &str, why: &str) -> Result<(), FormulaError> {
        if self.takes(sign) { Ok(()) } else { Err(self.fail(format!("`{sign}` is missing here: {why}"))) }
    }

    fn fail(&self, problem: impl Into<String>) -> FormulaError {
        FormulaError::new(self.text, self.at(), problem)
    }

    fn response(&mut self) -> Result<Response, FormulaError> {
        if matches!(self.peek(), Token::Sign("~")) {
            return Ok(Response::Nothing);
        }
        let name = self.column()?;
        if name.text != "Surv" || !self.takes("(") {
            return Ok(Response::Column(name));
        }
        let mut columns = vec![self.column()?];
        while self.takes(",") {
            columns.push(self.column()?);
        }
        self.demand(")", "`Surv(time, event)` or `Surv(entry, time, event)`")?;
        if matches!(columns.len(), 2 | 3) {
            return Ok(Response::Survival { at: name.at, columns });
        }
        Err(FormulaError::new(self.text, name.at, "write `Surv(time, event)` or `Surv(entry, time, event)`"))
    }

    fn column(&mut self) -> Result<Name, FormulaError> {
        match self.take() {
            Placed { token: Token::Name { text, .. }, at } => Ok(Name { text, at }),
            Placed { at, .. } => Err(FormulaError::new(self.text, at, "the name of a column is missing here")),
        }
    }

    fn deeper<T>(&mut self, read: impl FnOnce(&mut Self) -> Result<T, FormulaError>) -> Result<T, FormulaError> {
        self.depth += 1;
        if self.depth > DEEPEST {
            return Err(self.fail(format!("more than {DEEPEST} parentheses stand inside each other")));
        }
        let read = read(self);
        self.depth -= 1;
        read
    }

    fn sum(&mut self) -> Result<Node, FormulaError> {
        let at = self.at();
        let mut minus = self.takes("-");
        if !minus {
            self.takes("+");
        }
        let mut summands = Vec::new();
        loop {
            summands.push((minus, self.product()?));
            minus = if self.takes("+") {
                false
            } else if self.takes("-") {
                true
            } else {
                break;
            };
        }
        match summands.as_slice() {
            [(false, _)] => Ok(summands.swap_remove(0).1),
            _ => Ok(Node { at, kind: Kind::Sum(summands) }),
        }
    }

    fn product(&mut self) -> Result<Node, FormulaError> {
        self.joined("*", Self::interaction, Kind::Crossed)
    }

    fn interaction(&mut self) -> Result<Node, FormulaError> {
        self.joined(":", Self::power, Kind::Interaction)
    }

    /// Parts that a sign joins; a part that is alone is itself.
    fn joined(
        &mut self,
        sign: &str,
        part: impl Fn(&mut Self) -> Result<Node, FormulaError>,
        kind: fn(Vec<Node>) -> Kind,
    ) -> Result<Node, FormulaError> {
        let at = self.at();
        let first = part(self)?;
        if !self.takes(sign) {
            return Ok(first);
        }
        let mut parts = vec![first, part(self)?];
        while self.takes(sign) {
            parts.push(part(self)?);
        }
        Ok(Node { at, kind: kind(parts) })
    }

    fn power(&mut self) -> Result<Node, FormulaError> {
        let at = self.at();
        let base = self.atom()?;
        if !self.takes("^") {
            return Ok(base);
        }
        let place = self.at();
        match self.take().token {
            Token::Number(power) if power.fract() == 0.0 && (1.0..=LARGEST_POWER).contains(&power) => {
                Ok(Node { at, kind: Kind::Power(Box::new(base), power as u32) })
            }
            _ => {
                let problem = "after `^` stands a whole number from 1 to 8; for a power of a column write `poly(column, 2)`";
                Err(FormulaError::new(self.text, place, problem))
            }
        }
    }

    fn atom(&mut self) -> Result<Node, FormulaError> {
        let at = self.at();
        match self.take().token {
            Token::Number(value) if value == 0.0 || value == 1.0 => Ok(Node { at, kind: Kind::Intercept(value == 1.0) }),
            Token::Number(_) => {
                Err(FormulaError::new(self.text, at, "of numbers only 0 and 1 are terms: coefficients are learned, not written"))
            }
            Token::Name { text, quoted: false } if text == "I" && matches!(self.peek(), Token::Sign("(")) => {
                let problem = "there is no call `I`: powers are `poly(column, degree, raw = TRUE)`, products `a:b`";
                Err(FormulaError::new(self.text, at, problem))
            }
            Token::Name { text, quoted: false } if self.takes("(") => self.deeper(|reader| reader.call(text, at)).map(call_node),
            Token::Name { text, .. } => Ok(Node { at, kind: Kind::Column(text) }),
            Token::Sign(".") => Ok(Node { at, kind: Kind::Every }),
            Token::Sign("(") => self.deeper(|reader| reader.parenthesis(at)),
            Token::Sign("~") => Err(FormulaError::new(self.text, at, "a formula has one `~`")),
            _ => Err(FormulaError::new(self.text, at, "a term is missing here")),
        }
    }

    /// After `(`: a sum, or a group.
    fn parenthesis(&mut self, at: usize) -> Result<Node, FormulaError> {
        let inside = self.sum()?;
        let double = matches!(self.peek(), Token::Sign("||"));
        if self.takes("||") || self.takes("|") {
            let plain = matches!(self.peek(), Token::Name { quoted: false, .. });
            let by = self.column()?;
            let what = if plain && self.takes("(") {
                Called::Call(self.deeper(|reader| reader.call(by.text, by.at))?)
            } else {
                Called::Column(by.text)
            };
            let by = Variable { at: by.at, what };
            self.demand(")", "a group is `(effects | column)`")?;
            return Ok(Node { at, kind: Kind::Group { effects: Box::new(inside), double, by } });
        }
        self.demand(")", "the parenthesis is not closed")?;
        Ok(inside)
    }

    /// After the name and `(`.
    fn call(&mut self, name: String, at: usize) -> Result<Call, FormulaError> {
        let mut arguments = vec![self.argument()?];
        while self.takes(",") {
            arguments.push(self.argument()?);
        }
        self.demand(")", "the call is not closed; arguments are divided by commas")?;
        Ok(Call { name, at, arguments })
    }

    fn argument(&mut self) -> Result<Argument, FormulaError> {
        let at = self.at();
        let named = matches!(self.peek(), Token::Name { quoted: false, .. })
            && matches!(self.tokens.get(self.next + 1), Some(Placed { token: Token::Sign("="), .. }));
        let name = if named {
            let name = self.column()?.text;
            self.take();
            Some(name)
        } else {
            None
        };
        if !self.takes("[") {
            return Ok(Argument { at, name, value: self.value()? });
        }
        let mut values = vec![self.value()?];
        while self.takes(",") {
            values.push(self.value()?);
        }
        self.demand("]", "the list is not closed")?;
        Ok(Argument { at, name, value: Value::List(values) })
    }

    fn value(&mut self) -> Result<Value, FormulaError> {
        let at = self.at();
        let minus = self.takes("-");
        if minus || self.takes("+") {
            return match self.take().token {
                Token::Number(value) => Ok(Value::Number(if minus { -value } else { value })),
                _ => Err(FormulaError::new(self.text, at, "after a sign stands a number here")),
            };
        }
        match self.take().token {
            Token::Number(value) => Ok(Value::Number(value)),
            Token::Text(text) => Ok(Value::Text(text)),
            Token::Name { text, quoted: false } if self.takes("(") => self.deeper(|reader| reader.call(text, at)).map(Value::Call),
            Token::Name { text, quoted: false } if text == "TRUE" || text == "FALSE" => Ok(Value::Truth(text == "TRUE")),
            Token::Name { text, .. } => Ok(Value::Column(text)),
            _ => Err(FormulaError::new(self.text, at, "an argument is missing here: a number, a text, a column or a call")),
        }
    }
}

fn call_node(call: Call) -> Node {
    Node { at: call.at, kind: Kind::Call(call) }
}
