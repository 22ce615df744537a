//! The aggregate function: encrypted blocks of units in, sealed answers out.
//!
//! An accumulator opens the blocks of its partition, sums their units' clipped terms behind the gate, and seals the sum to the head when DataFusion asks for its state. What is merged
//! afterwards are lists of ciphertexts. The head adds them up, and checks that they hold every unit once.
//!
//! Arrays come from files and from other processes, and Ballista hands on what it fetched without a look at it. So each is validated before a value of it is taken.
//!
//! The function carries the head's question, which is a ciphertext too, and says nothing of it in a plan's text. Only executors have the site's key; scheduler and head's helper
//! plan with the function and could not call it.

use std::any::Any;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use ballista_core::serde::protobuf::BallistaPhysicalPlanNode;
use ballista_core::serde::protobuf::ballista_physical_plan_node::PhysicalPlanType;
use ballista_core::serde::{BallistaLogicalExtensionCodec, BallistaPhysicalExtensionCodec};
use datafusion::arrow::array::{Array, ArrayRef, AsArray, BinaryArray};
use datafusion::arrow::datatypes::{DataType, Int32Type, Int64Type, SchemaRef};
use datafusion::catalog::TableProvider;
use datafusion::common::{ScalarValue, TableReference};
use datafusion::datasource::file_format::FileFormatFactory;
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::TaskContext;
use datafusion::logical_expr::function::AccumulatorArgs;
use datafusion::logical_expr::{Accumulator, AggregateUDF, AggregateUDFImpl, Extension, LogicalPlan, Signature, Volatility};
use datafusion::physical_plan::ExecutionPlan;
use datafusion_proto::logical_plan::LogicalExtensionCodec;
use datafusion_proto::physical_plan::{PhysicalExtensionCodec, PhysicalProtoConverterExtension};
use dp_pvi_data::Blocks;
use dp_pvi_inference::methods::partial_sums::VisitPart;
use dp_pvi_privacy::partial_sums::{Question, SiteKey};
use prost::Message;

use crate::answered::{AnsweredQuestions, Which};
use crate::tls::LARGEST;

/// Name of the function.
const NAME: &str = "sealed_sum_of_terms";

/// The function for one question.
pub struct TermSum {
    question: Arc<[u8]>,
    key: Option<Arc<SiteKey>>,
    asked: Arc<AnsweredQuestions>,
    signature: Signature,
}

impl TermSum {
    /// For a question; with the site's key where it is to be computed.
    #[must_use]
    pub fn new(question: &[u8], key: Option<Arc<SiteKey>>) -> Self {
        Self::remembered(question, key, Arc::default())
    }

    /// In a process that remembers what it was asked.
    fn remembered(question: &[u8], key: Option<Arc<SiteKey>>, asked: Arc<AnsweredQuestions>) -> Self {
        let signature = Signature::exact(vec![DataType::Int64, DataType::Int32, DataType::Binary], Volatility::Volatile);
        Self { question: question.into(), key, asked, signature }
    }
}

/// Says its name.
impl fmt::Debug for TermSum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(NAME)
    }
}

impl PartialEq for TermSum {
    fn eq(&self, other: &Self) -> bool {
        self.question == other.question
    }
}

impl Eq for TermSum {}

impl Hash for TermSum {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.question.hash(state);
    }
}

impl AggregateUDFImpl for TermSum {
    fn name(&self) -> &str {
        NAME
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(DataType::Binary)
    }

    fn accumulator(&self, _: AccumulatorArgs) -> Result<Box<dyn Accumulator>> {
        let (question, asked) = (Arc::clone(&self.question), Arc::clone(&self.asked));
        Ok(Box::new(Sum { question, key: self.key.clone(), asked, part: None, sealed: Vec::new() }))
    }
}

/// The sum of one partition.
struct Sum {
    question: Arc<[u8]>,
    key: Option<Arc<SiteKey>>,
    asked: Arc<AnsweredQuestions>,
    /// Made at the first block.
    part: Option<Opened>,
    /// Answers that are sealed already.
    sealed: Vec<u8>,
}

/// A question that is being answered.
struct Opened {
    which: Which,
    blocks: Blocks,
    part: VisitPart,
}

/// Says its name.
impl fmt::Debug for Sum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(NAME)
    }
}

impl Sum {
    fn part(&mut self) -> Result<&mut Opened> {
        if self.part.is_none() {
            let Some(key) = &self.key else { return Err(failed("this process has no key of the site: only executors sum")) };
            let question = Question::open(&self.question, key).map_err(failed)?;
            let (which, snapshot) = (Which::of(&question, &self.question), question.snapshot());
            let part = VisitPart::new(question).map_err(failed)?;
            let blocks = Blocks::new(key, snapshot, part.features());
            self.part = Some(Opened { which, blocks, part });
        }
        self.part.as_mut().ok_or_else(|| failed("the part was just made"))
    }

    fn seal(&mut self) -> Result<ScalarValue> {
        if let Some(Opened { part, .. }) = self.part.take() {
            frame(&part.seal().map_err(failed)?, &mut self.sealed)?;
        }
        Ok(ScalarValue::Binary(Some(std::mem::take(&mut self.sealed))))
    }
}

impl Accumulator for Sum {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        let other = || failed("the snapshot has other columns");
        let [first, units, sealed] = values else { return Err(other()) };
        validate(values)?;
        let first = first.as_primitive_opt::<Int64Type>().ok_or_else(other)?;
        let units = units.as_primitive_opt::<Int32Type>().ok_or_else(other)?;
        let sealed = sealed.as_binary_opt::<i32>().ok_or_else(other)?;
        let asked = Arc::clone(&self.asked);
        let Opened { which, blocks, part } = self.part()?;
        for row in 0..sealed.len() {
            let first = first.value(row).cast_unsigned();
            asked.claim(*which, first).map_err(failed)?;
            let units = blocks.open(first, units.value(row).cast_unsigned(), sealed.value(row));
            let units = units.inspect_err(|_| asked.give_back(*which, first)).map_err(failed)?;
            part.add(&units, first).map_err(failed)?;
        }
        Ok(())
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        self.seal()
    }

    fn size(&self) -> usize {
        size_of_val(self) + self.sealed.len()
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        Ok(vec![self.seal()?])
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        validate(states)?;
        let states: &BinaryArray =
            states.first().and_then(|states| states.as_binary_opt()).ok_or_else(|| failed("a state is no list of answers"))?;
        for state in states.iter().flatten() {
            if self.sealed.len() + state.len() > LARGEST as usize {
                return Err(failed("the answers of all parts are more than one message holds: give [sum] fewer parts"));
            }
            self.sealed.extend_from_slice(state);
        }
        Ok(())
    }
}

/// Refuses arrays whose offsets or lengths are not those of their values.
fn validate(arrays: &[ArrayRef]) -> Result<()> {
    arrays.iter().try_for_each(|array| array.to_data().validate_full()).map_err(|_| failed("a column is not what it says"))
}

/// Appends an answer to a list of them: its length, and itself.
fn frame(answer: &[u8], list: &mut Vec<u8>) -> Result<()> {
    let length = u32::try_from(answer.len()).map_err(|_| failed("a sum of so many coordinates is too long"))?;
    list.extend_from_slice(&length.to_le_bytes());
    list.extend_from_slice(answer);
    Ok(())
}

fn failed(why: impl fmt::Display) -> DataFusionError {
    DataFusionError::Execution(why.to_string())
}

/// Carries the function between processes; all else as the library does it.
#[derive(Default)]
pub struct Codec {
    key: Option<Arc<SiteKey>>,
    /// By all functions that it carries into this process.
    asked: Arc<AnsweredQuestions>,
    logical: BallistaLogicalExtensionCodec,
    physical: BallistaPhysicalExtensionCodec,
}

impl Codec {
    /// With the site's key, where the function is to be computed.
    #[must_use]
    pub fn new(key: Option<Arc<SiteKey>>) -> Self {
        Self { key, ..Self::default() }
    }

    fn decode(&self, name: &str, question: &[u8]) -> Result<Arc<AggregateUDF>> {
        if name == NAME {
            Ok(Arc::new(TermSum::remembered(question, self.key.clone(), Arc::clone(&self.asked)).into()))
        } else {
            Err(failed("a plan has a function that this program does not know"))
        }
    }
}

fn encode(function: &AggregateUDF, buffer: &mut Vec<u8>) {
    if let Some(sum) = (function.inner().as_ref() as &dyn Any).downcast_ref::<TermSum>() {
        buffer.extend_from_slice(&sum.question);
    }
}

/// Says its name.
impl fmt::Debug for Codec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Codec")
    }
}

impl LogicalExtensionCodec for Codec {
    fn try_decode(&self, buffer: &[u8], inputs: &[LogicalPlan], context: &TaskContext) -> Result<Extension> {
        self.logical.try_decode(buffer, inputs, context)
    }

    fn try_encode(&self, node: &Extension, buffer: &mut Vec<u8>) -> Result<()> {
        self.logical.try_encode(node, buffer)
    }

    fn try_decode_table_provider(
        &self,
        buffer: &[u8],
        table: &TableReference,
        schema: SchemaRef,
        context: &TaskContext,
    ) -> Result<Arc<dyn TableProvider>> {
        self.logical.try_decode_table_provider(buffer, table, schema, context)
    }

    fn try_encode_table_provider(&self, table: &TableReference, node: Arc<dyn TableProvider>, buffer: &mut Vec<u8>) -> Result<()> {
        self.logical.try_encode_table_provider(table, node, buffer)
    }

    fn try_decode_file_format(&self, buffer: &[u8], context: &TaskContext) -> Result<Arc<dyn FileFormatFactory>> {
        self.logical.try_decode_file_format(buffer, context)
    }

    fn try_encode_file_format(&self, buffer: &mut Vec<u8>, node: Arc<dyn FileFormatFactory>) -> Result<()> {
        self.logical.try_encode_file_format(buffer, node)
    }

    fn try_decode_udaf(&self, name: &str, buffer: &[u8]) -> Result<Arc<AggregateUDF>> {
        self.decode(name, buffer)
    }

    fn try_encode_udaf(&self, node: &AggregateUDF, buffer: &mut Vec<u8>) -> Result<()> {
        encode(node, buffer);
        Ok(())
    }
}

impl PhysicalExtensionCodec for Codec {
    fn try_decode(
        &self,
        buffer: &[u8],
        inputs: &[Arc<dyn ExecutionPlan>],
        context: &TaskContext,
        converter: &dyn PhysicalProtoConverterExtension,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        // An executor decodes a plan before it can look at it. Of the library's own nodes it decodes those that a sum has.
        if self.key.is_some() {
            let node = BallistaPhysicalPlanNode::decode(buffer).ok().and_then(|node| node.physical_plan_type);
            let known = match node {
                Some(PhysicalPlanType::ShuffleWriter(_)) => inputs.len() == 1,
                Some(PhysicalPlanType::ShuffleReader(_)) => inputs.is_empty(),
                _ => false,
            };
            if !known {
                return Err(failed("refused: a plan has a node that is no part of a sum"));
            }
        }
        self.physical.try_decode(buffer, inputs, context, converter)
    }

    fn try_encode(
        &self,
        node: Arc<dyn ExecutionPlan>,
        buffer: &mut Vec<u8>,
        converter: &dyn PhysicalProtoConverterExtension,
    ) -> Result<()> {
        self.physical.try_encode(node, buffer, converter)
    }

    fn try_decode_udaf(&self, name: &str, buffer: &[u8]) -> Result<Arc<AggregateUDF>> {
        self.decode(name, buffer)
    }

    fn try_encode_udaf(&self, node: &AggregateUDF, buffer: &mut Vec<u8>) -> Result<()> {
        encode(node, buffer);
        Ok(())
    }
}
