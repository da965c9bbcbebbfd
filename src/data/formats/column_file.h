#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

namespace tessera {

/// A column of a table, or a member of a column.
struct Column {
  enum class Kind { text, binary, number, boolean, list, structure, other };

  std::string name;
  Kind kind = Kind::other;
  std::string type;             // as Arrow writes it, for messages: "list<item: string>"
  std::vector<Column> members;  // members of a structure; for a list, one member that describes its items
};

/// Some columns of a group of rows, in memory. Thread-safe. `column` is an index into the names that were passed to
/// ColumnFile::read().
class ColumnGroup {
 public:
  virtual ~ColumnGroup() = default;
  virtual std::int64_t rows() const = 0;
  /// Returns a value of any kind as JSON. Binary values become texts, which need not be UTF-8. Values of types that JSON lacks
  /// (times, decimals) become texts, too.
  virtual nlohmann::json json(std::size_t column, std::int64_t row) const = 0;
  /// Returns the bytes of a text or binary value, or of a structure's member; nullopt for null. The bytes are valid as long as
  /// the group exists.
  virtual std::optional<std::string_view> bytes(std::size_t column, std::int64_t row,
                                                const std::string& member = {}) const = 0;
};

/// Consecutive bytes of a file.
struct ByteRange {
  std::int64_t offset = 0, size = 0;
};

/// The bytes of a file that is not on the local disk. Thread-safe.
class FileBytes {
 public:
  virtual ~FileBytes() = default;
  virtual std::int64_t size() const = 0;
  /// Copies the bytes `wanted` to `out`. They are in `piece`, which is fetched whole. Throws UserError.
  virtual void read(const ByteRange& piece, const ByteRange& wanted, char* out) const = 0;
};

/// A table in a file, stored in groups of rows: Parquet, or Arrow's IPC streams and files. Thread-safe.
///
/// It is implemented in a separate library, which links Arrow and is loaded when the first table is opened. Therefore it throws
/// only standard exceptions, std::system_error if the disk fails and std::runtime_error if the bytes are damaged, and those of FileBytes.
class ColumnFile {
 public:
  virtual ~ColumnFile() = default;
  /// Returns the value of a key ("huggingface") in the schema's metadata, or an empty text.
  virtual std::string metadata(const std::string& key) const = 0;
  /// Reads only the named columns of a group. COLUMN.MEMBER reads a structure with only this member, if the format allows it.
  virtual std::shared_ptr<const ColumnGroup> read(std::int64_t group, const std::vector<std::string>& names) const = 0;

  /// Returns the pieces of a file outside the local disk that read() reads; empty for a local file.
  virtual std::vector<ByteRange> pieces(std::int64_t group, const std::vector<std::string>& names) const {
    static_cast<void>(group), static_cast<void>(names);
    return {};
  }

  std::vector<Column> columns;
  std::vector<std::int64_t> group_rows;   // number of rows of each group, from the file's footer
  std::vector<std::int64_t> group_bytes;  // estimates of the memory that each group takes with all its columns
  std::string problem;                    // what is wrong with the file after its last readable group; empty: nothing
};

/// Opens a table. Of a remote Parquet file, only the footer and the needed columns are fetched, as pieces in the cache; a remote Arrow file
/// (.arrow, .feather, .ipc) is fetched whole. Throws UserError naming the file if it is missing, is not a table or has a damaged footer.
/// Also throws UserError if Tessera was built without Arrow or if Arrow is missing; the message says in one line what to install.
std::shared_ptr<const ColumnFile> open_columns(const std::string& path);

/// Returns whether Arrow is available. Without Arrow, open_columns() always fails.
bool can_read_columns();

/// A dotted name, split into a column and nested members. The name after the name of a list refers to a member of the list's items.
struct ColumnPath {
  std::string column;
  std::vector<std::string> below;
  Column::Kind kind = Column::Kind::other;  // kind of the last member, or of the column if `below` is empty
  std::string type;
};

/// Resolves a name with dots. Returns nullopt if there is no such column or member. A column with dots in its own name takes
/// precedence.
std::optional<ColumnPath> find_column(const std::vector<Column>& columns, const std::string& name);

/// Starts at `value`, follows the names below[from], below[from + 1], ... to a member, and returns the member's value. If a list is on the
/// path, the names are followed for each of its items, and the results form one list. Returns null if a member is missing.
nlohmann::json value_below(const nlohmann::json& value, const std::vector<std::string>& below, std::size_t from = 0);

/// Lists the names of at most 40 columns: "a, b and c".
std::string column_names(const std::vector<Column>& columns);

}  // namespace tessera

/// The entry point of the library that links Arrow. `bytes` is null for a local file; otherwise the file is Parquet, and `bytes` must
/// outlive the result. Throws what ColumnFile throws.
extern "C" tessera::ColumnFile* tessera_open_columns(const char* path, const tessera::FileBytes* bytes);
