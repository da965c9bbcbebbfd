#include <algorithm>
#include <bit>
#include <cstring>
#include <unordered_map>

#include "src/io/pickle.h"
#include <tessera/base/error.h>

namespace tessera::io {
namespace {

using Kind = PickleValue::Kind;
using Place = std::uint32_t;

// Maximum number of values in a pickle. For comparison: a checkpoint with a thousand parameters and its optimizer has fifty thousand
// values.
constexpr std::size_t kMostValues = 4'000'000;
constexpr std::size_t kLongestName = 1000;

/// Python's pickle machine: a stack, marks on the stack, and a memo.
class PickleMachine {
 public:
  PickleMachine(std::string_view bytes, const std::string& origin) : bytes_(bytes), origin_(origin) {
    pickle_.values.emplace_back();
  }

  Pickle run() {
    for (char op = take(1)[0]; op != '.'; op = take(1)[0]) step(op);
    pickle_.root = pop();
    return std::move(pickle_);
  }

 private:
  [[noreturn]] void damaged(const std::string& what) const {
    user_error(origin_, ": its pickle is damaged at byte ", at_, ": ", what);
  }

  std::string_view take(std::uint64_t count) {
    if (count > bytes_.size() - at_) damaged("it ends in the middle");
    const std::string_view out = bytes_.substr(at_, count);
    at_ += count;
    return out;
  }
  std::uint64_t number(std::size_t width) {
    std::uint64_t out = 0;
    std::memcpy(&out, take(width).data(), width);
    return out;
  }
  std::string_view line() {
    const std::size_t end = bytes_.find('\n', at_);
    if (end == std::string_view::npos) damaged("it ends in the middle");
    const std::string_view out = take(end - at_);
    take(1);
    return out;
  }

  Place add(Kind kind) {
    if (pickle_.values.size() >= kMostValues)
      user_error(origin_, ": its pickle has more than ", kMostValues, " values, too many for a model");
    pickle_.values.emplace_back().kind = kind;
    return static_cast<Place>(pickle_.values.size() - 1);
  }
  PickleValue& value(Place place) { return pickle_.values[place]; }

  void push(Place place) { stack_.push_back(place); }
  PickleValue& push_new(Kind kind) {
    push(add(kind));
    return value(stack_.back());
  }
  void push_integer(std::int64_t integer) { push_new(Kind::kInteger).integer = integer; }
  void push_text(std::string_view text) { push_new(Kind::kText).text = text; }

  std::size_t floor() const { return marks_.empty() ? 0 : marks_.back(); }
  Place pop() {
    if (stack_.size() <= floor()) damaged("a value is missing");
    const Place out = stack_.back();
    stack_.pop_back();
    return out;
  }
  Place top() const {
    if (stack_.size() <= floor()) damaged("a value is missing");
    return stack_.back();
  }
  std::vector<Place> pop_to_mark() {
    if (marks_.empty()) damaged("a mark is missing");
    std::vector<Place> out(stack_.begin() + static_cast<std::ptrdiff_t>(marks_.back()), stack_.end());
    stack_.resize(marks_.back());
    marks_.pop_back();
    return out;
  }

  void push_sequence(std::vector<Place> items) { push_new(Kind::kSequence).items = std::move(items); }
  void push_tuple(std::size_t length) {
    std::vector<Place> items(length);
    for (std::size_t i = length; i-- > 0;) items[i] = pop();
    push_sequence(std::move(items));
  }
  void push_dict(std::vector<Place> items) {
    if (items.size() % 2 != 0) damaged("a key has no value");
    push_new(Kind::kDict).items = std::move(items);
  }
  /// Appends items to the list on top of the stack. If the top is an object of a class derived from list, drops the items, because no
  /// reader needs them.
  void append(const std::vector<Place>& items) {
    PickleValue& list = value(top());
    if (list.kind == Kind::kSequence) list.items.insert(list.items.end(), items.begin(), items.end());
  }
  void set_items(const std::vector<Place>& items) {
    if (items.size() % 2 != 0) damaged("a key has no value");
    PickleValue& dict = value(top());
    if (dict.kind != Kind::kDict && dict.kind != Kind::kObject) damaged("a key is set on a value that is not a dict");
    dict.items.insert(dict.items.end(), items.begin(), items.end());
  }
  void set_item() {
    const Place item = pop(), key = pop();
    set_items({key, item});
  }
  void push_class(std::string_view module, std::string_view name) {
    if (module.size() + name.size() > kLongestName) damaged("the name of a class is too long");
    push_new(Kind::kClass).text = concat(module, ".", name);
  }
  void push_class_from_lines() {
    const std::string_view module = line();
    push_class(module, line());
  }
  void push_class_from_stack() {
    const Place name = pop(), module = pop();
    push_class(std::string(value(module).text), std::string(value(name).text));
  }
  void push_object(Place maker, Place arguments) {
    PickleValue& object = push_new(Kind::kObject);
    object.maker = maker;
    object.arguments = arguments;
  }
  void push_call() {
    const Place arguments = pop();
    push_object(pop(), arguments);
  }
  void build() {
    const Place state = pop();
    if (value(top()).kind == Kind::kObject) value(top()).state = state;
  }
  void push_persistent() {
    const Place id = pop();
    push_new(Kind::kPersistent).arguments = id;
  }
  void push_long(std::uint64_t length) {
    const std::string_view digits = take(length);
    if (digits.size() > sizeof(std::int64_t)) {
      push_new(Kind::kOther);
      return;
    }
    const bool negative = !digits.empty() && (digits.back() & 0x80) != 0;
    std::uint64_t bits = negative ? ~std::uint64_t{0} : 0;
    std::memcpy(&bits, digits.data(), digits.size());
    push_integer(static_cast<std::int64_t>(bits));
  }
  void push_real() {
    std::uint64_t bits = 0;
    for (const char byte : take(sizeof(bits))) bits = bits << 8 | static_cast<unsigned char>(byte);
    push_new(Kind::kReal).real = std::bit_cast<double>(bits);
  }
  void remember() {
    const std::uint64_t key = memo_.size();
    memo_[key] = top();
  }
  void recall(std::uint64_t key) {
    const auto found = memo_.find(key);
    if (found == memo_.end()) damaged("it uses a memo entry that was never written");
    push(found->second);
  }

  void step(char op) {
    if (step_stack(op) || step_scalar(op) || step_container(op) || step_object(op)) return;
    damaged(concat("instruction ", static_cast<int>(static_cast<unsigned char>(op)), " is not in protocols 2 to 5"));
  }
  // One line per instruction.
  // clang-format off
  bool step_stack(char op) {
    switch (static_cast<unsigned char>(op)) {
      case 0x80: take(1); return true;  // the protocol
      case 0x95: take(8); return true;  // a frame
      case '(': marks_.push_back(stack_.size()); return true;
      case '0': pop(); return true;
      case '1': pop_to_mark(); return true;
      case '2': push(top()); return true;
      case 'q': memo_[number(1)] = top(); return true;
      case 'r': memo_[number(4)] = top(); return true;
      case 0x94: remember(); return true;
      case 'h': recall(number(1)); return true;
      case 'j': recall(number(4)); return true;
      default: return false;
    }
  }
  bool step_scalar(char op) {
    switch (static_cast<unsigned char>(op)) {
      case 'N': push_new(Kind::kNone); return true;
      case 0x88: push_integer(1); return true;
      case 0x89: push_integer(0); return true;
      case 'J': push_integer(static_cast<std::int32_t>(number(4))); return true;
      case 'K': push_integer(static_cast<std::int64_t>(number(1))); return true;
      case 'M': push_integer(static_cast<std::int64_t>(number(2))); return true;
      case 0x8A: push_long(number(1)); return true;
      case 0x8B: push_long(number(4)); return true;
      case 'G': push_real(); return true;
      case 0x8C: case 'U': case 'C': push_text(take(number(1))); return true;
      case 'X': case 'T': case 'B': push_text(take(number(4))); return true;
      case 0x8D: case 0x8E: case 0x96: push_text(take(number(8))); return true;
      default: return false;
    }
  }
  bool step_container(char op) {
    switch (static_cast<unsigned char>(op)) {
      case ')': case ']': case 0x8F: push_sequence({}); return true;
      case '}': push_dict({}); return true;
      case 't': case 'l': case 0x91: push_sequence(pop_to_mark()); return true;
      case 'd': push_dict(pop_to_mark()); return true;
      case 0x85: push_tuple(1); return true;
      case 0x86: push_tuple(2); return true;
      case 0x87: push_tuple(3); return true;
      case 'a': append({pop()}); return true;
      case 'e': case 0x90: append(pop_to_mark()); return true;
      case 's': set_item(); return true;
      case 'u': set_items(pop_to_mark()); return true;
      default: return false;
    }
  }
  bool step_object(char op) {
    switch (static_cast<unsigned char>(op)) {
      case 'c': push_class_from_lines(); return true;
      case 0x93: push_class_from_stack(); return true;
      case 'R': case 0x81: push_call(); return true;
      case 0x92: pop(); push_call(); return true;  // the keyword arguments are not needed
      case 'b': build(); return true;
      case 'Q': push_persistent(); return true;
      default: return false;
    }
  }
  // clang-format on

  std::string_view bytes_;
  const std::string& origin_;
  std::uint64_t at_ = 0;
  Pickle pickle_;
  std::vector<Place> stack_;
  std::vector<std::size_t> marks_;
  std::unordered_map<std::uint64_t, Place> memo_;
};

}  // namespace

Pickle parse_pickle(std::string_view bytes, const std::string& origin) {
  return PickleMachine(bytes, origin).run();
}

}  // namespace tessera::io
