#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tessera::io {

/// One value of a pickle. Values refer to each other by their index in Pickle::values, because a pickle may share values and may even
/// contain itself.
struct PickleValue {
  enum class Kind { kNone, kInteger, kReal, kText, kSequence, kDict, kClass, kObject, kPersistent, kOther };

  Kind kind = Kind::kNone;
  std::int64_t integer = 0;  // True is 1, False is 0
  double real = 0;
  std::string text;  // for kClass: "module.name"
  std::vector<std::uint32_t>
      items;                    // for lists, tuples and sets: the items; for dicts and dict-like objects: key, value, key, value...
  std::uint32_t maker = 0;      // for kObject: the class or function that Python would call
  std::uint32_t arguments = 0;  // for kObject: the arguments that Python would pass to `maker`; for kPersistent: the id
  std::uint32_t state = 0;      // for kObject: the state that Python would set on the created object; 0 if there is none
};

/// The content of a pickle (protocols 2 to 5), parsed without running any of its code. A class is represented by its name, an object by its
/// class, arguments and state. Index 0 of `values` stands for a missing value.
struct Pickle {
  std::vector<PickleValue> values;
  std::uint32_t root = 0;

  const PickleValue& at(std::uint32_t place) const { return values[place]; }
};

/// Reads the pickle at the beginning of `bytes`. Limits the number of values. Before memory is allocated for a size that the pickle states,
/// checks that `bytes` has that many bytes left. Throws UserError naming `origin` and the byte if the pickle is damaged, truncated, or has
/// instructions that are not in protocols 2 to 5.
Pickle parse_pickle(std::string_view bytes, const std::string& origin);

}  // namespace tessera::io
