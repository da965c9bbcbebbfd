#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tessera::io {

/// One value of a pickle. Values name each other by their place in Pickle::values, for a pickle may share them and even
/// hold itself.
struct PickleValue {
  enum class Kind { kNone, kInteger, kReal, kText, kSequence, kDict, kClass, kObject, kPersistent, kOther };

  Kind kind = Kind::kNone;
  std::int64_t integer = 0;  // also of True and False
  double real = 0;
  std::string text;  // of kClass "module.name"
  std::vector<std::uint32_t>
      items;                    // list, tuple, set: its items; dict and dict-like object: key, value, key, value...
  std::uint32_t maker = 0;      // of kObject: the class or function that Python would call
  std::uint32_t arguments = 0;  // of kObject: what it would be called with; of kPersistent: the id
  std::uint32_t state = 0;      // of kObject: what it would be given afterwards; 0: nothing
};

/// What a pickle (protocols 2 to 5) says, of which nothing is run: a class is its name, an object its class, arguments and
/// state. values[0] stands for "nothing".
struct Pickle {
  std::vector<PickleValue> values;
  std::uint32_t root = 0;

  const PickleValue& at(std::uint32_t place) const { return values[place]; }
};

/// Reads the pickle at the beginning of `bytes`. No more than a fixed number of values is read, and nothing is allocated
/// by a number that only the pickle claims. Throws UserError naming `origin` and the byte: damaged, truncated, or made of
/// instructions that protocols 2 to 5 do not have.
Pickle parse_pickle(std::string_view bytes, const std::string& origin);

}  // namespace tessera::io
