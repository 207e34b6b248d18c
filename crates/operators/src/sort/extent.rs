//! Owns extents: records in a row as a batch of Arrow with its schema. (Krevat et al., §7: "files are
//! stored as a sequence of extents, where each extent is a series of records … following a schema
//! defined for each extent".)
//!
//! A chunk on its way from a split to a part is an extent: its bytes are the values of the batch's
//! one column, so a batch is made of it, and it of a batch, without a copy. A chunk brings no schema
//! along but the schema's fingerprint, which the part compares with that of its own plan. Whoever
//! wants batches of records calls this; it never reads a file.

use super::format::{LineOrder, RecordFormat};
use super::line_key::LineKey;
use arrow_array::{Array, ArrayRef, BinaryArray, FixedSizeBinaryArray, RecordBatch};
use arrow_buffer::{Buffer, OffsetBuffer, ScalarBuffer};
use arrow_schema::{ArrowError, DataType, Field, Schema, SchemaRef};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::Arc;
use xxhash_rust::xxh3::xxh3_64;

/// Why bytes are no extent, or not one of these records.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ExtentError {
    /// The last record is cut.
    #[error("an extent of {bytes} bytes ends within a record: give whole records alone")]
    CutRecord {
        /// Bytes of the extent.
        bytes: usize,
    },
    /// More bytes than the offsets of a batch can tell.
    #[error("an extent of {bytes} bytes: one has less than 2 GiB, cut it at the end of a record")]
    TooLong {
        /// Bytes of the extent.
        bytes: usize,
    },
    /// Records of another format.
    #[error(
        "an extent of schema {found:016x} came where records have schema {expected:016x}: the processes of the sort are of different versions, or their memory is faulty; start all of them from one version"
    )]
    OtherSchema {
        /// The fingerprint of the schema that was expected.
        expected: u64,
        /// The fingerprint that the extent has.
        found: u64,
    },
    /// A batch that is none of records.
    #[error("the batch has not the one column of records without nulls that its schema names")]
    OtherColumns,
    /// Arrow refuses it.
    #[error(transparent)]
    Arrow(#[from] ArrowError),
}

impl RecordFormat {
    /// The schema of an extent of such records: one column, `record` of fixed width or `line` of any,
    /// and what of it is the key as metadata. A line has its newline.
    pub fn schema(&self) -> SchemaRef {
        let mut metadata = BTreeMap::new();
        let mut put = |name: &str, value: &str| metadata.insert(name.to_owned(), value.to_owned());
        let number = |number: u32| number.to_string();
        let field = match *self {
            RecordFormat::Fixed {
                width,
                key_offset,
                key_length,
            } => {
                put("key.offset", &number(key_offset));
                put("key.length", &number(key_length));
                put("order", "bytes");
                // A record of 2 GiB or more is in no batch: `batch` refuses it as too long.
                let width = i32::try_from(width).unwrap_or(i32::MAX);
                Field::new("record", DataType::FixedSizeBinary(width), false)
            }
            RecordFormat::Lines { key, order } => {
                match key {
                    LineKey::WholeLine => {
                        put("key", "line");
                    }
                    LineKey::Bytes { offset, length } => {
                        put("key.offset", &number(offset));
                        put("key.length", &number(length));
                    }
                    LineKey::Fields {
                        first,
                        last,
                        separator,
                    } => {
                        put("key.field", &number(first));
                        if let Some(last) = last {
                            put("key.last_field", &number(last));
                        }
                        if let Some(separator) = separator {
                            put("key.separator", &number(separator.into()));
                        }
                    }
                }
                let order = match order {
                    LineOrder::C => "bytes",
                    LineOrder::Numeric => "numeric",
                };
                put("order", order);
                Field::new("line", DataType::Binary, false)
            }
        };
        let metadata = metadata.into_iter().collect();
        Arc::new(Schema::new_with_metadata(vec![field], metadata))
    }

    /// The fingerprint of [`RecordFormat::schema`], which extents bring along.
    pub fn fingerprint(&self) -> u64 {
        fingerprint(&self.schema())
    }
}

/// A number that schemas which differ do not have in common, but for one chance in 2⁶⁴: of the
/// columns' names and types, and of the metadata. It is the same on all machines.
pub fn fingerprint(schema: &Schema) -> u64 {
    let mut text = String::new();
    for field in schema.fields() {
        let (name, kind, nullable) = (field.name(), field.data_type(), field.is_nullable());
        let _ = writeln!(text, "{name:?} {kind} {nullable}");
    }
    let metadata: BTreeMap<_, _> = schema.metadata().iter().collect();
    for (name, value) in metadata {
        let _ = writeln!(text, "{name:?} {value:?}");
    }
    xxh3_64(text.as_bytes())
}

/// Whether an extent with this fingerprint has records of the other.
///
/// # Errors
/// When they differ.
pub fn check(found: u64, expected: u64) -> Result<(), ExtentError> {
    match found == expected {
        true => Ok(()),
        false => Err(ExtentError::OtherSchema { expected, found }),
    }
}

/// The batch of an extent. The bytes become its values as they lie, without a copy; of lines the
/// offsets are made.
///
/// # Errors
/// When the bytes end within a record, are too many, or the schema is none of records.
pub fn batch(schema: &SchemaRef, bytes: Vec<u8>) -> Result<RecordBatch, ExtentError> {
    let length = bytes.len();
    let too_long = || ExtentError::TooLong { bytes: length };
    let end = i32::try_from(length).map_err(|_| too_long())?;
    let [field] = schema.fields().as_ref() else {
        return Err(ExtentError::OtherColumns);
    };
    let column: ArrayRef = match field.data_type() {
        DataType::FixedSizeBinary(width) if *width > 0 => {
            if end % width != 0 {
                return Err(ExtentError::CutRecord { bytes: length });
            }
            let values = Buffer::from_vec(bytes);
            Arc::new(FixedSizeBinaryArray::try_new(*width, values, None)?)
        }
        DataType::Binary => {
            if bytes.last().is_some_and(|last| *last != b'\n') {
                return Err(ExtentError::CutRecord { bytes: length });
            }
            let ends = memchr::memchr_iter(b'\n', &bytes).map(|at| at as i32 + 1);
            let offsets: Vec<i32> = std::iter::once(0).chain(ends).collect();
            let offsets = OffsetBuffer::new(ScalarBuffer::from(offsets));
            let values = Buffer::from_vec(bytes);
            Arc::new(BinaryArray::try_new(offsets, values, None)?)
        }
        _ => return Err(ExtentError::OtherColumns),
    };
    Ok(RecordBatch::try_new(schema.clone(), vec![column])?)
}

/// The bytes of a batch that [`batch`] has made: the values as they lie, without a copy if nobody
/// else has the batch or a part of it, and otherwise copied.
///
/// # Errors
/// When the batch has other columns than one of records.
pub fn bytes(batch: RecordBatch) -> Result<Vec<u8>, ExtentError> {
    let (_, mut columns, _) = batch.into_parts();
    let (Some(column), true) = (columns.pop(), columns.is_empty()) else {
        return Err(ExtentError::OtherColumns);
    };
    if column.null_count() > 0 {
        return Err(ExtentError::OtherColumns);
    }
    let values = match column.data_type() {
        DataType::FixedSizeBinary(width) => {
            let records = column.as_any().downcast_ref::<FixedSizeBinaryArray>();
            let records = records.ok_or(ExtentError::OtherColumns)?;
            let all = records.values().clone();
            // A slice of a batch begins where its values do.
            all.slice_with_length(0, *width as usize * records.len())
        }
        DataType::Binary => {
            let lines = column.as_any().downcast_ref::<BinaryArray>();
            let lines = lines.ok_or(ExtentError::OtherColumns)?;
            let ends = lines.value_offsets();
            let (first, last) = (ends[0] as usize, ends[lines.len()] as usize);
            lines.values().slice_with_length(first, last - first)
        }
        _ => return Err(ExtentError::OtherColumns),
    };
    drop(column);
    Ok(values.into_vec().unwrap_or_else(|shared| shared.to_vec()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn formats() -> Vec<RecordFormat> {
        let lines = |key, separator, order| RecordFormat::lines(key, separator, order).unwrap();
        vec![
            RecordFormat::default(),
            RecordFormat::fixed(100, "0:11").unwrap(),
            RecordFormat::fixed(100, "1:10").unwrap(),
            RecordFormat::fixed(50, "0:10").unwrap(),
            lines(None, None, LineOrder::C),
            lines(None, None, LineOrder::Numeric),
            lines(Some("2"), None, LineOrder::C),
            lines(Some("2,3"), None, LineOrder::C),
            lines(Some("2,3"), Some(","), LineOrder::C),
            lines(Some("2:3"), None, LineOrder::C),
        ]
    }

    fn records(format: &RecordFormat) -> Vec<u8> {
        match format.width() {
            Some(width) => (0..37 * width).map(|at| (at * 7) as u8).collect(),
            None => b"b,2\n\na,1 3\nlong line\n".to_vec(),
        }
    }

    #[test]
    fn an_extent_becomes_a_batch_and_itself_again_where_it_lies() {
        for format in formats() {
            let bytes = records(&format);
            let (expected, place) = (bytes.clone(), bytes.as_ptr());
            let batch = batch(&format.schema(), bytes).unwrap();
            let all: Vec<&[u8]> = format.records(&expected).collect();
            assert_eq!(batch.num_rows(), all.len());
            let column = batch.column(0);
            let of = |row: usize| match format.width() {
                Some(_) => column
                    .as_any()
                    .downcast_ref::<FixedSizeBinaryArray>()
                    .unwrap()
                    .value(row),
                None => column
                    .as_any()
                    .downcast_ref::<BinaryArray>()
                    .unwrap()
                    .value(row),
            };
            assert!((0..all.len()).all(|row| of(row) == all[row]), "{format:?}");
            assert_eq!(of(0).as_ptr(), place, "{format:?}");
            let back = super::bytes(batch).unwrap();
            assert_eq!(back.as_ptr(), place, "{format:?}");
            assert_eq!(back, expected);
        }
    }

    #[test]
    fn a_batch_that_somebody_else_has_is_copied_and_a_slice_is_its_records() {
        for format in formats() {
            let all = records(&format);
            let batch = batch(&format.schema(), all.clone()).unwrap();
            assert_eq!(bytes(batch.clone()).unwrap(), all);
            let rows: Vec<&[u8]> = format.records(&all).collect();
            assert_eq!(bytes(batch.slice(1, 2)).unwrap(), rows[1..3].concat());
            assert_eq!(bytes(batch.slice(1, 0)).unwrap(), b"");
        }
    }

    #[test]
    fn schemas_of_different_records_have_different_fingerprints() {
        let all: Vec<u64> = formats().iter().map(RecordFormat::fingerprint).collect();
        for (at, one) in all.iter().enumerate() {
            assert!(!all[at + 1..].contains(one), "{:?}", formats()[at]);
            assert!(check(*one, *one).is_ok());
        }
        let error = check(all[0], all[1]).unwrap_err().to_string();
        assert!(
            error.contains(&format!("schema {:016x} came", all[0])),
            "{error}"
        );
        // Processes of different machines and builds compare it.
        assert_eq!(all[0], 7_874_325_019_772_684_158);
    }

    #[test]
    fn what_is_no_extent_is_refused() {
        let fixed = RecordFormat::default().schema();
        let lines = RecordFormat::lines(None, None, LineOrder::C)
            .unwrap()
            .schema();
        for (schema, bytes) in [(&fixed, vec![0; 150]), (&lines, b"a\nb".to_vec())] {
            let refused = batch(schema, bytes).unwrap_err();
            assert!(
                matches!(refused, ExtentError::CutRecord { .. }),
                "{refused}"
            );
        }
        for schema in [&fixed, &lines] {
            assert_eq!(batch(schema, Vec::new()).unwrap().num_rows(), 0);
        }
        let other = Schema::new(vec![Field::new("number", DataType::Int64, false)]);
        let refused = batch(&Arc::new(other), Vec::new()).unwrap_err();
        assert!(matches!(refused, ExtentError::OtherColumns));
    }
}
