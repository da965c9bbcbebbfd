#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

namespace tessera {

/// A column of a table, or a member of one.
struct Column {
  enum class Kind { text, binary, number, boolean, list, structure, other };

  std::string name;
  Kind kind = Kind::other;
  std::string type;             // as Arrow writes it, for messages: "list<item: string>"
  std::vector<Column> members;  // the members of a structure; for a list, one for its items
};

/// Some columns of a group of rows, in memory. Thread-safe. A column is given by its index among the requested names.
class ColumnGroup {
 public:
  virtual ~ColumnGroup() = default;
  virtual std::int64_t rows() const = 0;
  /// Returns a value of any kind: null, numbers, booleans, texts (and binary values, which need not be UTF-8), arrays, objects;
  /// types that JSON lacks (times, decimals) as text.
  virtual nlohmann::json json(std::size_t column, std::int64_t row) const = 0;
  /// Returns the bytes of a text or binary value, or of a structure's member; nullopt for null. They are valid as long as the
  /// group.
  virtual std::optional<std::string_view> bytes(std::size_t column, std::int64_t row,
                                                const std::string& member = {}) const = 0;
};

/// A table in a file, stored in groups of rows: Parquet, or Arrow's IPC streams and files. Thread-safe.
///
/// It is implemented in a separate library, which links Arrow and is loaded when the first table is opened. Therefore it throws
/// only standard exceptions: std::system_error if the disk or the network fails, std::runtime_error if the bytes are damaged.
class ColumnFile {
 public:
  virtual ~ColumnFile() = default;
  virtual const std::vector<Column>& columns() const = 0;
  /// Returns a value of the schema's metadata ("huggingface"), or an empty text.
  virtual std::string metadata(const std::string& key) const = 0;
  /// The number of rows of each group, from the file's footer.
  virtual const std::vector<std::int64_t>& group_rows() const = 0;
  /// Estimates the memory that a group takes with all its columns.
  virtual std::int64_t group_bytes(std::int64_t group) const = 0;
  /// What is wrong with the file after its last readable group; empty: nothing.
  virtual const std::string& problem() const = 0;
  /// Reads these columns of a group, and no others.
  virtual std::shared_ptr<const ColumnGroup> read(std::int64_t group, const std::vector<std::string>& names) const = 0;
};

/// Throws UserError naming the file if it is missing, not a table, or has a damaged footer. If Tessera was built without Arrow
/// or Arrow is missing, the message says in one line what to install.
std::shared_ptr<const ColumnFile> open_columns(const std::string& path);

/// Whether Arrow is available, so that open_columns() does not fail for lack of it.
bool can_read_columns();

}  // namespace tessera

/// The entry point of the library that links Arrow. Throws std::system_error and std::runtime_error.
extern "C" tessera::ColumnFile* tessera_open_columns(const char* path);
