"""Message types for tests, made without protoc."""

from __future__ import annotations

from typing import Any

from google.protobuf import (
    descriptor_pb2,
    descriptor_pool,
    duration_pb2,
    empty_pb2,
    message_factory,
    text_format,
    timestamp_pb2,
    wrappers_pb2,
)
from google.type import date_pb2, timeofday_pb2  # type: ignore[import-untyped]

IMPORTS = (duration_pb2, empty_pb2, timestamp_pb2, wrappers_pb2, date_pb2, timeofday_pb2)
TYPES = """
name: "shop.proto" package: "shop" syntax: "proto3"
enum_type { name: "Color" value { name: "RED" number: 0 } value { name: "GREEN" number: -5 } }
message_type {
  name: "Point"
  field { name: "x" number: 1 type: TYPE_SINT32 }
  field { name: "at" number: 2 type_name: ".google.protobuf.Timestamp" }
}
message_type {
  name: "Order"
  oneof_decl { name: "payment" } oneof_decl { name: "_tip" }
  field { name: "id" number: 1 type: TYPE_UINT64 }
  field { name: "count" number: 2 type: TYPE_UINT32 }
  field { name: "name" number: 3 type: TYPE_STRING }
  field { name: "raw" number: 4 type: TYPE_BYTES }
  field { name: "color" number: 5 type_name: ".shop.Color" }
  field { name: "at" number: 6 type_name: ".google.protobuf.Timestamp" }
  field { name: "lasts" number: 7 type_name: ".google.protobuf.Duration" }
  field { name: "limit" number: 8 type_name: ".google.protobuf.UInt64Value" }
  field { name: "day" number: 9 type_name: ".google.type.Date" }
  field { name: "time" number: 10 type_name: ".google.type.TimeOfDay" }
  field { name: "nothing" number: 11 type_name: ".google.protobuf.Empty" }
  field { name: "point" number: 12 type_name: ".shop.Point" }
  field { name: "points" number: 13 label: LABEL_REPEATED type_name: ".shop.Point" }
  field { name: "ids" number: 14 label: LABEL_REPEATED type: TYPE_UINT64 }
  field { name: "colors" number: 15 label: LABEL_REPEATED type_name: ".shop.Color" }
  field { name: "tags" number: 16 label: LABEL_REPEATED type_name: ".shop.Order.TagsEntry" }
  field { name: "places" number: 17 label: LABEL_REPEATED type_name: ".shop.Order.PlacesEntry" }
  field { name: "tip" number: 18 type: TYPE_INT32 proto3_optional: true oneof_index: 1 }
  field { name: "cash" number: 19 type: TYPE_INT32 oneof_index: 0 }
  field { name: "card" number: 20 type: TYPE_STRING oneof_index: 0 }
  field { name: "double" number: 21 type: TYPE_DOUBLE }
  field { name: "float" number: 22 type: TYPE_FLOAT }
  field { name: "ok" number: 23 type: TYPE_BOOL }
  field { name: "big" number: 24 type: TYPE_SFIXED64 }
  nested_type {
    name: "TagsEntry" options { map_entry: true }
    field { name: "key" number: 1 type: TYPE_STRING }
    field { name: "value" number: 2 type: TYPE_INT32 }
  }
  nested_type {
    name: "PlacesEntry" options { map_entry: true }
    field { name: "key" number: 1 type: TYPE_UINT32 }
    field { name: "value" number: 2 type_name: ".shop.Point" }
  }
}
"""
OLD_TYPES = """
name: "old.proto" package: "old" syntax: "proto2"
enum_type { name: "E" value { name: "ONE" number: 1 } }
message_type {
  name: "Old"
  field { name: "id" number: 1 type: TYPE_INT32 label: LABEL_REQUIRED }
  field { name: "text" number: 2 type: TYPE_STRING label: LABEL_OPTIONAL default_value: "no" }
  field { name: "e" number: 3 type_name: ".old.E" label: LABEL_OPTIONAL }
}
message_type {
  name: "Grouped"
  field { name: "g" number: 1 type: TYPE_GROUP type_name: ".old.Grouped.G" label: LABEL_OPTIONAL }
  nested_type { name: "G" field { name: "x" number: 1 type: TYPE_INT32 label: LABEL_OPTIONAL } }
}
message_type {
  name: "Tree"
  field { name: "leaf" number: 1 type_name: ".old.Grouped.G" label: LABEL_OPTIONAL }
  field { name: "below" number: 2 type_name: ".old.Branches" label: LABEL_OPTIONAL }
}
message_type {
  name: "Branches"
  field { name: "trees" number: 1 type_name: ".old.Tree" label: LABEL_REPEATED }
}
"""
NEW_TYPES = """
name: "new.proto" package: "new" syntax: "editions" edition: EDITION_2023
message_type { name: "New" field { name: "id" number: 1 type: TYPE_INT32 } }
"""


def file_set(types: str) -> descriptor_pb2.FileDescriptorSet:
    """A file and what it imports, as protoc would make it."""
    own = text_format.Parse(types, descriptor_pb2.FileDescriptorProto())
    files = descriptor_pb2.FileDescriptorSet()
    for module in IMPORTS:
        module.DESCRIPTOR.CopyToProto(files.file.add())
        own.dependency.append(module.DESCRIPTOR.name)
    files.file.append(own)
    return files


def class_of(types: str, name: str) -> Any:
    pool = descriptor_pool.DescriptorPool()
    for file in file_set(types).file:
        pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(name))


Order = class_of(TYPES, "shop.Order")
Old = class_of(OLD_TYPES, "old.Old")
