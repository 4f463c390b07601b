"""Spark types for our types: those that Spark has for the types of `tidemark.message.foreign.arrow.types`.

Going through Arrow keeps the two the same by construction; Spark compares them exactly when a data source
hands over record batches. pyspark is imported only when a type is asked for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tidemark.message.foreign.arrow.types import arrow_schema, arrow_type
from tidemark.message.types import Type

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import DataType, StructField, StructType


def spark_type(item: Type) -> DataType:
    """The Spark type of `item`."""
    return _type(arrow_type(item))


def spark_schema(item: Type) -> StructType:
    """The schema of a DataFrame of events of type `item`."""
    from pyspark.sql.types import StructType

    return StructType(spark_fields(arrow_schema(item)))


def spark_fields(columns: pa.Schema) -> list[StructField]:
    """The fields that Spark reads from record batches with these columns."""
    return [_field(field) for field in columns]


def _field(field: pa.Field) -> StructField:
    from pyspark.sql.types import StructField

    return StructField(field.name, _type(field.type), field.nullable)


def _type(item: pa.DataType) -> DataType:
    import pyarrow.types as kinds
    from pyspark.sql.types import ArrayType, DecimalType, StructType

    if kinds.is_struct(item):
        return StructType([_field(field) for field in item.fields])
    if kinds.is_list(item):
        return ArrayType(_type(item.value_type), item.value_field.nullable)
    if kinds.is_decimal(item):
        return DecimalType(item.precision, item.scale)
    return _plain_types()[item]


def _plain_types() -> dict[pa.DataType, Any]:
    import pyarrow as pa
    from pyspark.sql import types

    return {
        pa.bool_(): types.BooleanType(),
        pa.int32(): types.IntegerType(),
        pa.int64(): types.LongType(),
        pa.float32(): types.FloatType(),
        pa.float64(): types.DoubleType(),
        pa.string(): types.StringType(),
        pa.binary(): types.BinaryType(),
        pa.timestamp("us", tz="UTC"): types.TimestampType(),
    }
