#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

namespace tessera {

/// A column of a table, or what one is made of.
struct Column {
  enum class Kind { text, binary, number, boolean, list, structure, other };

  std::string name;
  Kind kind = Kind::other;
  std::string type;             // as Arrow writes it, for messages: "list<item: string>"
  std::vector<Column> members;  // of a structure; of a list its items, one
};

/// Some columns of a group of rows, in memory. Thread-safe. A column is given by its place among the names asked for.
class ColumnGroup {
 public:
  virtual ~ColumnGroup() = default;
  virtual std::int64_t rows() const = 0;
  /// A value of any kind: null, numbers, booleans, texts (and binary values, whose bytes need not be UTF-8), arrays, objects;
  /// what JSON has not (times, decimals) as text.
  virtual nlohmann::json json(std::size_t column, std::int64_t row) const = 0;
  /// The bytes of a text or binary value, or of this member of a structure; nothing for null. They live as long as the group.
  virtual std::optional<std::string_view> bytes(std::size_t column, std::int64_t row,
                                                const std::string& member = {}) const = 0;
};

/// A table in a file whose rows lie in groups: Parquet, or Arrow's IPC streams and files. Thread-safe.
///
/// What reads it is a library of its own, which links Arrow and is loaded when the first table is opened: only standard
/// exceptions come out of it. std::system_error: the disk or the network failed; std::runtime_error: the bytes are damaged.
class ColumnFile {
 public:
  virtual ~ColumnFile() = default;
  virtual const std::vector<Column>& columns() const = 0;
  /// A value of the schema's metadata ("huggingface"), or an empty text.
  virtual std::string metadata(const std::string& key) const = 0;
  /// Rows of each group, by the file's footer, without reading any.
  virtual const std::vector<std::int64_t>& group_rows() const = 0;
  /// About what a group takes in memory with all its columns.
  virtual std::int64_t group_bytes(std::int64_t group) const = 0;
  /// What is wrong with the file behind its last group; empty: nothing.
  virtual const std::string& problem() const = 0;
  /// Reads these columns of a group, and no others.
  virtual std::shared_ptr<const ColumnGroup> read(std::int64_t group, const std::vector<std::string>& names) const = 0;
};

/// Throws UserError naming the file: it is not there, is no table, or its footer is damaged; or saying in one line what to
/// install, where Tessera was built without Arrow or Arrow is gone.
std::shared_ptr<const ColumnFile> open_columns(const std::string& path);

/// Whether Arrow is there: open_columns() does not fail for want of it.
bool can_read_columns();

}  // namespace tessera

/// What the library that links Arrow gives. Throws std::system_error and std::runtime_error.
extern "C" tessera::ColumnFile* tessera_open_columns(const char* path);
