// This is the only source file that includes Arrow. It is built as libtessera_arrow.so.
#include <algorithm>
#include <array>
#include <arrow/api.h>
#include <arrow/buffer.h>
#include <arrow/io/file.h>
#include <arrow/ipc/reader.h>
#include <arrow/util/float16.h>
#include <arrow/util/io_util.h>
#include <arrow/visit_array_inline.h>
#include <cstring>
#include <exception>
#include <mutex>
#include <parquet/arrow/reader.h>
#include <parquet/exception.h>
#include <parquet/file_reader.h>
#include <parquet/metadata.h>
#include <stdexcept>
#include <system_error>

#include "src/data/formats/column_file.h"

namespace tessera {
namespace {

using Json = nlohmann::json;

constexpr int kDeepest = 32;                                   // largest nesting depth of lists and structures
constexpr std::int64_t kMostRows = std::int64_t{1} << 31;      // largest number of rows in a group
constexpr std::int64_t kLeastLimit = std::int64_t{256} << 20;  // lower bound of a group's memory limit, in bytes
constexpr std::int64_t kMostGrowth = 16, kMostCompressed = 64;

/// Limits the memory of one group's values, because a few bytes of a dictionary-encoded column may expand to many gigabytes.
struct GroupMemory {
  /// `reported` is the group's size in bytes according to the footer, which may be wrong. `file` is the file's size in bytes.
  GroupMemory(std::int64_t reported, std::int64_t file)
      : limited(&counted, kLeastLimit + kMostGrowth * std::min(reported, kMostCompressed * file)) {}

  arrow::ProxyMemoryPool counted{arrow::default_memory_pool()};
  arrow::CappedMemoryPool limited;
};

// Joins the lines of an Arrow message.
std::string one_line(std::string text) {
  while (!text.empty() && text.back() == '\n') text.pop_back();
  std::ranges::replace(text, '\n', ' ');
  return text;
}

[[noreturn]] void fail(const arrow::Status& status) {
  if (const int number = arrow::internal::ErrnoFromStatus(status); number != 0)
    throw std::system_error(number, std::generic_category(), one_line(status.message()));
  throw std::runtime_error(one_line(status.message()));
}

void check(const arrow::Status& status) {
  if (!status.ok()) fail(status);
}

template <class T>
T checked(arrow::Result<T> result) {
  if (!result.ok()) fail(result.status());
  return std::move(result).ValueUnsafe();
}

// Calls `read` and returns its result. Converts Parquet's exceptions to std::runtime_error.
template <class Read>
auto reading(const Read& read) {
  try {
    return read();
  } catch (const parquet::ParquetStatusException& error) {
    fail(error.status());
  } catch (const parquet::ParquetException& error) {
    throw std::runtime_error(one_line(error.what()));
  } catch (const std::bad_alloc&) {
    throw std::runtime_error("its values need more memory than is available");
  }
}

Column column_of(const std::string& name, const arrow::DataType& type, int depth = 0) {
  if (depth > kDeepest) throw std::runtime_error("its columns are nested too deeply");
  Column out{name, Column::Kind::other, type.ToString(), {}};
  switch (type.id()) {
    case arrow::Type::STRING:
    case arrow::Type::LARGE_STRING:
    case arrow::Type::STRING_VIEW:
      out.kind = Column::Kind::text;
      break;
    case arrow::Type::BINARY:
    case arrow::Type::LARGE_BINARY:
    case arrow::Type::BINARY_VIEW:
    case arrow::Type::FIXED_SIZE_BINARY:
      out.kind = Column::Kind::binary;
      break;
    case arrow::Type::BOOL:
      out.kind = Column::Kind::boolean;
      break;
    case arrow::Type::DICTIONARY:
      return column_of(name, *static_cast<const arrow::DictionaryType&>(type).value_type(), depth + 1);
    case arrow::Type::EXTENSION:
      return column_of(name, *static_cast<const arrow::ExtensionType&>(type).storage_type(), depth + 1);
    case arrow::Type::STRUCT:
      out.kind = Column::Kind::structure;
      for (const auto& field : type.fields())
        out.members.push_back(column_of(field->name(), *field->type(), depth + 1));
      break;
    case arrow::Type::LIST:
    case arrow::Type::LARGE_LIST:
    case arrow::Type::FIXED_SIZE_LIST:
      out.kind = Column::Kind::list;
      out.members.push_back(column_of("item", *type.field(0)->type(), depth + 1));
      break;
    default:
      if (arrow::is_integer(type.id()) || arrow::is_floating(type.id())) out.kind = Column::Kind::number;
  }
  return out;
}

using Bytes = std::optional<std::string_view>;

Bytes bytes_of(const arrow::Array& array, std::int64_t row);
Json make_json(const arrow::Array& array, std::int64_t row);

/// Calls of(the values of an array, row) for an array whose values are stored in another array; returns nullopt for other arrays.
template <class Of>
auto of_stored(const arrow::Array& array, std::int64_t row, const Of& of) -> std::optional<decltype(of(array, row))> {
  if (array.type_id() == arrow::Type::EXTENSION) return of(*static_cast<const arrow::ExtensionArray&>(array).storage(), row);
  if (array.type_id() != arrow::Type::DICTIONARY) return std::nullopt;
  const auto& encoded = static_cast<const arrow::DictionaryArray&>(array);
  return of(*encoded.dictionary(), encoded.GetValueIndex(row));
}

template <class Use>
struct TypeVisitor {
  const Use& use;

  template <class Array>
  arrow::Status Visit(const Array& array) const {
    use(array);
    return arrow::Status::OK();
  }
};

/// Calls use(array) with the array in its own type.
template <class Use>
void with_type(const arrow::Array& array, const Use& use) {
  const TypeVisitor<Use> visitor{use};
  check(arrow::VisitArrayInline(array, &visitor));
}

Bytes bytes_of(const arrow::Array& array, std::int64_t row) {
  if (array.IsNull(row)) return std::nullopt;
  if (const auto stored = of_stored(array, row, bytes_of)) return *stored;
  Bytes out;
  with_type(array, [&]<class Array>(const Array& typed) {
    if constexpr (arrow::has_string_view<typename Array::TypeClass>::value) out = typed.GetView(row);
  });
  return out;
}

Json make_json(const arrow::Array& array, std::int64_t row) {
  if (array.IsNull(row)) return nullptr;
  if (const Bytes bytes = bytes_of(array, row)) return std::string(*bytes);
  if (const auto stored = of_stored(array, row, make_json)) return *stored;
  Json out;
  with_type(array, [&]<class Array>(const Array& typed) {
    using Type = typename Array::TypeClass;
    if constexpr (std::is_same_v<Type, arrow::HalfFloatType>) {
      out = arrow::util::Float16::FromBits(typed.Value(row)).ToFloat();
    } else if constexpr (arrow::is_boolean_type<Type>::value || arrow::is_number_type<Type>::value) {
      out = typed.Value(row);
    } else if constexpr (arrow::is_list_type<Type>::value || std::is_same_v<Type, arrow::MapType>) {
      out = Json::array();
      const std::int64_t begin = typed.value_offset(row), end = begin + typed.value_length(row);
      for (std::int64_t i = begin; i < end; ++i) out.push_back(make_json(*typed.values(), i));
    } else if constexpr (std::is_same_v<Type, arrow::StructType>) {
      out = Json::object();
      for (int i = 0; i < typed.num_fields(); ++i) out[typed.type()->field(i)->name()] = make_json(*typed.field(i), row);
    } else if (const auto scalar = typed.GetScalar(row); scalar.ok()) {
      out = (*scalar)->ToString();
    }
  });
  return out;
}

/// The columns of one group. A column whose size exceeds 32 bits may consist of several chunks.
class ArrowGroup : public ColumnGroup {
 public:
  /// `memory` holds the columns' data; it is null if the data is in the mapped file.
  ArrowGroup(const std::vector<std::shared_ptr<arrow::ChunkedArray>>& columns, std::int64_t rows,
             std::shared_ptr<GroupMemory> memory)
      : memory_(std::move(memory)), columns_(columns), rows_(rows) {}

  std::int64_t rows() const override { return rows_; }
  Json json(std::size_t column, std::int64_t row) const override {
    const arrow::Array& piece = piece_of(column, row);
    return make_json(piece, row);
  }
  Bytes bytes(std::size_t column, std::int64_t row, const std::string& member) const override {
    const arrow::Array& piece = piece_of(column, row);
    if (member.empty()) return bytes_of(piece, row);
    if (piece.type_id() != arrow::Type::STRUCT || piece.IsNull(row)) return std::nullopt;
    const auto& structure = static_cast<const arrow::StructArray&>(piece);
    const int place = structure.struct_type()->GetFieldIndex(member);
    return place < 0 ? std::nullopt : bytes_of(*structure.field(place), row);
  }

 private:
  // Returns the chunk that holds a row, and changes `row` to the index within it.
  const arrow::Array& piece_of(std::size_t column, std::int64_t& row) const {
    for (const auto& piece : columns_.at(column)->chunks()) {
      if (row < piece->length()) return *piece;
      row -= piece->length();
    }
    throw std::out_of_range("a row beyond the end of its group");
  }

  const std::shared_ptr<GroupMemory> memory_;  // declared first, so that it is destroyed last
  const std::vector<std::shared_ptr<arrow::ChunkedArray>> columns_;
  const std::int64_t rows_;
};

// Returns the column that a name of ColumnFile::read() stands for. `table` is a table or a record batch.
template <class Table>
auto column_of_name(const Table& table, const std::string& name) {
  auto column = table.GetColumnByName(name);
  if (!column) column = table.GetColumnByName(name.substr(0, name.rfind('.')));
  if (!column) throw std::runtime_error("has no column " + name);
  return column;
}

/// The common base of Parquet and Arrow files.
class ArrowFile : public ColumnFile {
 public:
  std::string metadata(const std::string& key) const override {
    if (!metadata_) return {};
    const int place = metadata_->FindKey(key);
    return place < 0 ? "" : metadata_->value(place);
  }

 protected:
  void take(const arrow::Schema& schema) {
    metadata_ = schema.metadata();
    for (const auto& field : schema.fields()) columns.push_back(column_of(field->name(), *field->type()));
  }

  std::shared_ptr<const arrow::KeyValueMetadata> metadata_;
};

/// A file outside the local disk, for one reader.
class RemoteFile : public arrow::io::RandomAccessFile {
 public:
  explicit RemoteFile(const FileBytes& bytes) : bytes_(bytes) {}

  /// From now on, these ranges are read as a whole. They are sorted and do not overlap.
  void set_pieces(std::vector<ByteRange> pieces) { pieces_ = std::move(pieces); }
  /// Throws the first error of FileBytes, if there was one. Arrow itself passes on only its text.
  void rethrow() const {
    const std::lock_guard lock(mutex_);
    if (failure_) std::rethrow_exception(failure_);
  }

  arrow::Status Close() override {
    closed_ = true;
    return arrow::Status::OK();
  }
  bool closed() const override { return closed_; }
  arrow::Result<std::int64_t> Tell() const override { return position_; }
  arrow::Status Seek(std::int64_t position) override {
    position_ = position;
    return arrow::Status::OK();
  }
  arrow::Result<std::int64_t> GetSize() override { return bytes_.size(); }
  arrow::Result<std::int64_t> Read(std::int64_t size, void* out) override {
    ARROW_ASSIGN_OR_RAISE(const std::int64_t count, ReadAt(position_, size, out));
    position_ += count;
    return count;
  }
  arrow::Result<std::shared_ptr<arrow::Buffer>> Read(std::int64_t size) override {
    ARROW_ASSIGN_OR_RAISE(auto out, ReadAt(position_, size));
    position_ += out->size();
    return out;
  }
  arrow::Result<std::shared_ptr<arrow::Buffer>> ReadAt(std::int64_t position, std::int64_t size) override {
    ARROW_ASSIGN_OR_RAISE(std::shared_ptr<arrow::ResizableBuffer> out, arrow::AllocateResizableBuffer(size));
    ARROW_ASSIGN_OR_RAISE(const std::int64_t count, ReadAt(position, size, out->mutable_data()));
    ARROW_RETURN_NOT_OK(out->Resize(count));
    return std::shared_ptr<arrow::Buffer>(std::move(out));
  }
  arrow::Result<std::int64_t> ReadAt(std::int64_t position, std::int64_t size, void* out) override {
    if (position < 0 || size < 0 || position > bytes_.size()) return arrow::Status::IOError("a range outside the file");
    const std::int64_t count = std::min(size, bytes_.size() - position);
    try {
      for (std::int64_t done = 0; done < count;) {
        const ByteRange wanted{position + done, count - done};
        const ByteRange piece = piece_of(wanted);
        const ByteRange now{wanted.offset, std::min(wanted.size, piece.offset + piece.size - wanted.offset)};
        bytes_.read(piece, now, static_cast<char*>(out) + done);
        done += now.size;
      }
    } catch (...) {
      const std::lock_guard lock(mutex_);
      if (!failure_) failure_ = std::current_exception();
      return arrow::Status::IOError("the file cannot be read");
    }
    return count;
  }

 private:
  // Returns the piece that holds the first byte of a range, or else the range up to the next piece.
  ByteRange piece_of(const ByteRange& wanted) const {
    const auto next = std::ranges::find_if(pieces_, [&](const ByteRange& piece) { return piece.offset + piece.size > wanted.offset; });
    if (next == pieces_.end()) return wanted;
    return next->offset <= wanted.offset ? *next : ByteRange{wanted.offset, std::min(wanted.size, next->offset - wanted.offset)};
  }

  const FileBytes& bytes_;
  std::vector<ByteRange> pieces_;
  mutable std::mutex mutex_;
  std::exception_ptr failure_;
  std::int64_t position_ = 0;
  bool closed_ = false;
};

/// A Parquet file. Each read opens the file again, so that a data set of thousands of files does not need thousands of open
/// files, and so that threads share nothing. Only the numbers in the footer are kept.
class ParquetFile : public ArrowFile {
  using File = std::shared_ptr<arrow::io::RandomAccessFile>;

  // Opens the file, calls use(file) and returns its result.
  template <class Use>
  auto from_file(const Use& use) const {
    if (bytes_ == nullptr)
      return reading([&] { return use(File(checked(arrow::io::ReadableFile::Open(path_)))); });
    const auto file = std::make_shared<RemoteFile>(*bytes_);
    try {
      return reading([&] { return use(File(file)); });
    } catch (const std::exception&) {
      file->rethrow();
      throw;
    }
  }

 public:
  /// `bytes` is null for a local file.
  ParquetFile(std::string path, const FileBytes* bytes) : path_(std::move(path)), bytes_(bytes) {
    from_file([&](const auto& file) {
      file_bytes_ = checked(file->GetSize());
      const auto reader = open(file, arrow::default_memory_pool());
      std::shared_ptr<arrow::Schema> schema;
      check(reader->GetSchema(&schema));
      take(*schema);
      const auto footer = reader->parquet_reader()->metadata();
      for (int i = 0; i < footer->num_row_groups(); ++i) {
        const auto group = footer->RowGroup(i);
        if (group->num_rows() < 0 || group->num_rows() > kMostRows)
          throw std::runtime_error("a row group with an impossible number of rows");
        group_rows.push_back(group->num_rows());
        group_bytes.push_back(std::max<std::int64_t>(group->total_byte_size(), 0));
      }
      return 0;
    });
  }

  std::vector<ByteRange> pieces(std::int64_t group, const std::vector<std::string>& names) const override {
    if (bytes_ == nullptr) return {};
    return from_file([&](const auto& file) {
      const auto reader = open(file, arrow::default_memory_pool());
      return pieces_of(*reader, group, names);
    });
  }

  std::shared_ptr<const ColumnGroup> read(std::int64_t group, const std::vector<std::string>& names) const override {
    return from_file([&](const auto& file) -> std::shared_ptr<const ColumnGroup> {
      const auto memory = std::make_shared<GroupMemory>(group_bytes.at(static_cast<std::size_t>(group)), file_bytes_);
      const auto reader = open(file, &memory->limited);
      const auto footer = reader->parquet_reader()->metadata();
      const std::int64_t rows = group_rows.at(static_cast<std::size_t>(group));
      if (group >= footer->num_row_groups() || footer->RowGroup(static_cast<int>(group))->num_rows() != rows)
        throw std::runtime_error("the file has changed since it was opened");
      if (bytes_ != nullptr) static_cast<RemoteFile&>(*file).set_pieces(pieces_of(*reader, group, names));
      const auto table = checked(reader->ReadRowGroup(static_cast<int>(group), leaves(*footer->schema(), names)));
      std::vector<std::shared_ptr<arrow::ChunkedArray>> read;
      for (const std::string& name : names) {
        const auto column = column_of_name(*table, name);
        if (column->length() != rows) throw std::runtime_error("column " + name + " has a different number of rows");
        read.push_back(column);
      }
      return std::make_shared<ArrowGroup>(read, rows, memory);
    });
  }

 private:
  static std::unique_ptr<parquet::arrow::FileReader> open(const File& file, arrow::MemoryPool* pool) {
    parquet::arrow::FileReaderBuilder builder;
    check(builder.Open(file, parquet::ReaderProperties(pool)));
    return checked(builder.memory_pool(pool)->Build());
  }

  // Returns the pieces with the named columns. Columns that are close to each other are in one piece.
  static std::vector<ByteRange> pieces_of(parquet::arrow::FileReader& reader, std::int64_t group, const std::vector<std::string>& names) {
    const auto footer = reader.parquet_reader()->metadata();
    std::vector<ByteRange> out;
    for (const arrow::io::ReadRange& range :
         checked(reader.parquet_reader()->GetReadRanges({static_cast<int>(group)}, leaves(*footer->schema(), names))))
      out.push_back({range.offset, range.length});
    return out;
  }

  // Returns the indices of the leaf columns below the named columns.
  static std::vector<int> leaves(const parquet::SchemaDescriptor& schema, const std::vector<std::string>& names) {
    const auto is_named = [&](const std::string& name) { return std::ranges::find(names, name) != names.end(); };
    std::vector<int> out;
    for (int i = 0; i < schema.num_columns(); ++i)
      if (is_named(schema.GetColumnRoot(i)->name()) || is_named(schema.Column(i)->path()->ToDotString()))
        out.push_back(i);
    return out;
  }

  const std::string path_;
  const FileBytes* const bytes_;
  std::int64_t file_bytes_ = 0;
};

/// An Arrow IPC file or stream, mapped into memory. Of an uncompressed batch, only the requested columns are read.
class ArrowIpcFile : public ArrowFile {
 public:
  ArrowIpcFile(const std::string& path, bool is_stream)
      : file_(checked(arrow::io::MemoryMappedFile::Open(path, arrow::io::FileMode::READ))) {
    if (is_stream)
      read_stream();
    else
      read_file();
    const std::int64_t size = checked(file_->GetSize());
    for (const auto& batch : batches_) group_rows.push_back(batch->num_rows());
    group_bytes.assign(batches_.size(), size / std::max<std::int64_t>(1, std::ssize(batches_)));
  }

  std::shared_ptr<const ColumnGroup> read(std::int64_t group, const std::vector<std::string>& names) const override {
    const auto& batch = batches_.at(static_cast<std::size_t>(group));
    std::vector<std::shared_ptr<arrow::ChunkedArray>> read;
    for (const std::string& name : names) {
      const auto column = column_of_name(*batch, name);
      check(column->ValidateFull());  // offsets in a damaged file may point anywhere
      read.push_back(std::make_shared<arrow::ChunkedArray>(column));
    }
    return std::make_shared<ArrowGroup>(read, batch->num_rows(), nullptr);
  }

 private:
  void read_stream() {
    const auto reader = checked(arrow::ipc::RecordBatchStreamReader::Open(file_));
    take(*reader->schema());
    while (problem.empty()) {
      std::shared_ptr<arrow::RecordBatch> batch;
      if (const arrow::Status status = reader->ReadNext(&batch); !status.ok())
        problem = one_line(status.message());
      else if (!batch)
        return;
      else
        batches_.push_back(std::move(batch));
    }
  }

  void read_file() {
    const auto reader = checked(arrow::ipc::RecordBatchFileReader::Open(file_));
    take(*reader->schema());
    for (int i = 0; i < reader->num_record_batches(); ++i) batches_.push_back(checked(reader->ReadRecordBatch(i)));
  }

  const std::shared_ptr<arrow::io::MemoryMappedFile> file_;
  std::vector<std::shared_ptr<arrow::RecordBatch>> batches_;
};

std::array<char, 8> first_bytes(const char* path) {
  std::array<char, 8> out{};
  const auto file = checked(arrow::io::ReadableFile::Open(path));
  checked(file->ReadAt(0, out.size(), out.data()));
  return out;
}

}  // namespace
}  // namespace tessera

extern "C" tessera::ColumnFile* tessera_open_columns(const char* path, const tessera::FileBytes* remote) {
  if (remote != nullptr) return new tessera::ParquetFile(path, remote);
  const auto start = tessera::first_bytes(path);
  const std::string_view bytes(start.data(), start.size());
  if (bytes.starts_with("PAR1")) return new tessera::ParquetFile(path, nullptr);
  if (bytes.starts_with("ARROW1")) return new tessera::ArrowIpcFile(path, false);
  if (bytes.starts_with("\xFF\xFF\xFF\xFF")) return new tessera::ArrowIpcFile(path, true);
  throw std::runtime_error("it starts like neither");
}
