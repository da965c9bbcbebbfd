#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "src/data/formats/field_expression.h"
#include "src/io/mapped_file.h"

namespace tessera {

/// A 128-bit number, as its upper and lower half.
using SampleId = std::array<std::uint64_t, 2>;

/// Parses 32 hexadecimal digits; returns nullopt for any other text.
std::optional<SampleId> parse_sample_id(std::string_view text);

/// A list of ids in the format of DataComp's published subsets: a .npy file with pairs of little-endian uint64, upper half first (numpy's
/// dtype "u8,u8", or two columns of uint64). The file stays mapped into memory. If it is not sorted, a sorted copy is made.
class IdList {
 public:
  /// Throws UserError if the file does not contain ids; the message names the file and what it contains.
  explicit IdList(const std::string& path);

  bool contains(const SampleId& id) const;
  std::int64_t size() const { return size_; }

 private:
  SampleId at(std::int64_t index) const;

  const io::MappedFile file_;
  const char* ids_ = nullptr;
  std::int64_t size_ = 0;
  std::vector<SampleId> sorted_;  // sorted copy, if the file is not sorted
};

/// A filter's verdict on a sample. For `unknown` and `no_id`, `field` is the field that the sample lacks or has of another type.
struct FilterVerdict {
  enum Kind : std::uint8_t { passes, fails, unknown, not_listed, no_id, unreadable };
  Kind kind = passes;
  std::uint8_t field = 0;  // index in RowFilter::fields()
};

/// A filter with two parts, a list of ids and a condition on side fields. A sample must pass both. Thread-safe.
class RowFilter {
 public:
  /// `expression` is the condition, and `ids` is the path of the .npy file with the list of ids; a part that is null is left
  /// out. `id_field` is the side field that holds a sample's id. Throws UserError if the condition or the file is invalid.
  RowFilter(const std::optional<std::string>& expression, const std::optional<std::string>& ids,
            const std::string& id_field);

  /// Returns the fields that the filter reads.
  const std::vector<std::string>& fields() const { return fields_; }
  /// Applies the filter to a sample. `value` returns the value of a field, given its index in fields(); null if the sample lacks it.
  FilterVerdict judge(const std::function<nlohmann::json(std::size_t)>& value) const;
  /// Applies the filter to a sample. The members of the JSON object are the sample's side fields.
  FilterVerdict judge(const nlohmann::json& object) const;
  /// Returns the filter as written in the settings: "filter width >= 224".
  const std::string& described() const { return described_; }

 private:
  std::optional<FieldExpression> expression_;
  std::unique_ptr<const IdList> ids_;
  std::vector<std::string> fields_;
  std::size_t id_field_ = 0;
  std::string described_;
};

/// Counts how many samples pass a filter, and why the others do not.
class FilterCounts {
 public:
  explicit FilterCounts(const std::vector<std::string>& fields) : fields_(fields) {}

  void add(const FilterVerdict& verdict);
  std::int64_t passing() const { return counts_[FilterVerdict::passes]; }
  /// Describes the counts: "777 pass filter ...: 200 do not, 23 lack similarity or have it of another type".
  std::string describe(const RowFilter& filter) const;
  /// If every sample was rejected because it lacks the same field, returns the name of this field. Otherwise returns an empty text.
  std::string field_of_none() const;

 private:
  std::vector<std::string> fields_;
  std::int64_t all_ = 0;
  std::array<std::int64_t, FilterVerdict::unreadable + 1> counts_{};  // by FilterVerdict::Kind
  std::map<std::string, std::int64_t> lacking_;
};

/// Base class of indexed sources that can read the side fields of their samples without reading the images.
class FieldSource {
 public:
  virtual ~FieldSource() = default;
  /// Returns a filter's verdict on each sample, in order. Throws UserError if the filter uses a field that no sample can have.
  virtual std::vector<FilterVerdict> judge(const RowFilter& filter) const = 0;
};

/// Returns a member of a JSON object. `name` is the member's name, or a dotted path ("a.b") through objects and lists of objects.
nlohmann::json json_member(const nlohmann::json& object, const std::string& name);

}  // namespace tessera
