#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <string_view>

#include <ATen/ATen.h>
#include <caffe2/serialize/inline_container.h>

#include "src/base/digest.h"
#include "src/base/printable.h"
#include "src/io/pickle.h"
#include "src/io/pytorch_file.h"
#include "src/io/tar.h"
#include <tessera/base/error.h>
#include <tessera/base/log.h>
#include <tessera/base/text.h>
#include <tessera/io/safetensors.h>

namespace tessera::io {
namespace {

static_assert(std::endian::native == std::endian::little, "zip archives are little-endian");

constexpr std::string_view kEnd = "PK\x05\x06", kEnd64 = "PK\x06\x06", kLocator64 = "PK\x06\x07", kEntry = "PK\x01\x02";
constexpr std::uint64_t kEndBytes = 22, kEnd64Bytes = 56, kLocatorBytes = 20, kEntryBytes = 46, kLongestComment = 65535;
constexpr std::uint64_t kLargestDirectory = 256 << 20;

/// Returns the number at offset `place`, or 0 if `bytes` ends before the end of the number.
template <class Number>
std::uint64_t number_at(std::string_view bytes, std::uint64_t place) {
  Number out = 0;
  if (place + sizeof(out) <= bytes.size()) std::memcpy(&out, bytes.data() + place, sizeof(out));
  return out;
}

struct Range {
  std::uint64_t begin, size;
};

/// Finds the archive's directory through the zip64 record if there is one, otherwise through the record at the archive's end.
std::optional<Range> find_directory(const RandomAccessFile& file) {
  const std::uint64_t tail_bytes = std::min(file.size(), kEndBytes + kLongestComment + kLocatorBytes);
  const std::string tail = file.read(file.size() - tail_bytes, tail_bytes);
  const std::size_t end = tail.rfind(kEnd);
  if (end == std::string::npos || end + kEndBytes > tail.size()) return std::nullopt;
  if (end >= kLocatorBytes && std::string_view(tail).substr(end - kLocatorBytes).starts_with(kLocator64)) {
    const std::string large = file.read(number_at<std::uint64_t>(tail, end - kLocatorBytes + 8), kEnd64Bytes);
    if (large.size() < kEnd64Bytes || !large.starts_with(kEnd64)) return std::nullopt;
    return Range{number_at<std::uint64_t>(large, 48), number_at<std::uint64_t>(large, 40)};
  }
  return Range{number_at<std::uint32_t>(tail, end + 16), number_at<std::uint32_t>(tail, end + 12)};
}

// Reads the CRC-32 of each member from the directory at the end of a zip archive. The keys of the result are the members' names without
// their first folder ("data/0" for "archive/data/0"). Members without a checksum (0, as torch.save writes with set_crc32_options(False))
// are left out. Throws UserError naming the path if there is no directory, as in a truncated file.
std::map<std::string, std::uint32_t> read_zip_checksums(const std::string& path) {
  const RandomAccessFile file(path);
  const std::optional<Range> place = find_directory(file);
  const bool inside = place && place->size <= std::min(file.size(), kLargestDirectory) &&
                      place->begin <= file.size() - place->size;
  if (!inside)
    user_error(path, ": cut off, or not a PyTorch file: it begins like a zip archive, but the list of contents at the "
                     "end is missing");
  const std::string directory = file.read(place->begin, place->size);
  std::map<std::string, std::uint32_t> out;
  for (std::string_view rest = directory; rest.size() >= kEntryBytes && rest.starts_with(kEntry);) {
    const std::uint64_t name_bytes = number_at<std::uint16_t>(rest, 28);
    const std::string_view name = rest.substr(kEntryBytes, name_bytes);
    const auto checksum = static_cast<std::uint32_t>(number_at<std::uint32_t>(rest, 16));
    if (checksum != 0) out.emplace(name.substr(name.find('/') + 1), checksum);
    const std::uint64_t whole =
        kEntryBytes + name_bytes + number_at<std::uint16_t>(rest, 30) + number_at<std::uint16_t>(rest, 32);
    rest.remove_prefix(std::min<std::uint64_t>(whole, rest.size()));
  }
  return out;
}

namespace fs = std::filesystem;
using Kind = PickleValue::Kind;

constexpr std::size_t kTarMagicAt = 257;

// Limits on the recursive search for a model's tensors. Only a file that was made to waste the reader's time exceeds these limits.
constexpr std::size_t kMostVisits = 1'000'000;
constexpr int kDeepest = 64;
constexpr std::size_t kLongestTensorName = 500;

// The names of the state that is read if the user chooses none; the first one that a file has counts.
constexpr const char* kUsualStates[] = {"state_dict", "model_state_dict", "model"};
constexpr const char* kHowToChoose = "--state NAME, start.state, or state= in Python";

constexpr std::string_view kAverageCount = "n_averaged";  // a number that torch.optim.swa_utils.AveragedModel adds to the model's tensors

std::string first_bytes(const std::string& path) {
  std::string out(512, '\0');
  if (!fs::is_regular_file(path)) return {};
  std::ifstream file(path, std::ios::binary);
  file.read(out.data(), static_cast<std::streamsize>(out.size()));
  out.resize(static_cast<std::size_t>(file.gcount()));
  return out;
}

bool is_zip(std::string_view head) {
  return head.starts_with("PK\x03\x04");
}
bool is_pickle(std::string_view head) {
  return head.size() > 2 && head[0] == '\x80' && head[1] >= 2 && head[1] <= 5;
}
bool is_tar(std::string_view head) {
  return head.size() > kTarMagicAt && head.substr(kTarMagicAt).starts_with("ustar");
}

[[noreturn]] void refuse_old_format(const std::string& path, const char* form) {
  const std::string name = printable(path);
  user_error(path, ": ", form,
             ", as PyTorch wrote before 1.6, is not supported; three lines of Python convert it: "
             "import torch; state = torch.load('",
             name, "', map_location='cpu', weights_only=True); torch.save(state.get('state_dict', state), '", name,
             ".new.pt')");
}

std::string first_line(const c10::Error& error) {
  const std::string text = error.what_without_backtrace();
  return printable(text.substr(0, text.find('\n')));
}

struct NamedType {
  const char* storage;  // as in "torch.FloatStorage"
  const char* dtype;    // as in "torch.float32"
  at::ScalarType type;
};

constexpr NamedType kTypes[] = {
    {"FloatStorage", "float32", at::kFloat}, {"DoubleStorage", "float64", at::kDouble},
    {"HalfStorage", "float16", at::kHalf},   {"BFloat16Storage", "bfloat16", at::kBFloat16},
    {"LongStorage", "int64", at::kLong},     {"IntStorage", "int32", at::kInt},
    {"ShortStorage", "int16", at::kShort},   {"CharStorage", "int8", at::kChar},
    {"ByteStorage", "uint8", at::kByte},     {"BoolStorage", "bool", at::kBool},
};

std::optional<at::ScalarType> type_named(std::string_view name) {
  if (!name.starts_with("torch.")) return std::nullopt;
  name.remove_prefix(6);
  for (const NamedType& type : kTypes)
    if (name == type.storage || name == type.dtype) return type.type;
  return std::nullopt;
}

/// The zip archive: a pickle, and one record per storage.
class PytorchArchive {
 public:
  explicit PytorchArchive(const std::string& path)
      : path_(path), size_(fs::file_size(path)), budget_(size_), checksums_(read_zip_checksums(path)), reader_(path) {
    if (!reader_.hasRecord("data.pkl"))
      user_error(path, ": a zip archive that torch.save did not write: it has no data.pkl");
    if (reader_.hasRecord("byteorder") && record("byteorder") == "big")
      user_error(path, ": written on a big-endian machine, which is not supported");
  }

  Pickle pickle() { return parse_pickle(record("data.pkl"), path_); }

  /// Returns the bytes of the storage `key`. Another call with the same key returns the same tensor. Error messages name `tensor`.
  at::Tensor storage(const std::string& key, const std::string& tensor) {
    const auto [found, is_new] = storages_.try_emplace(key);
    if (is_new) {
      const std::uint64_t bytes = size_of("data/" + key);
      found->second = at::empty({static_cast<std::int64_t>(bytes)}, at::kByte);
      if (bytes > 0) reader_.getRecord("data/" + key, found->second.data_ptr(), bytes);
      check_sum("data/" + key, found->second, tensor);
    }
    return found->second;
  }

 private:
  // Returns a record's size. Throws if the sizes of all records read so far add up to more than the file's size: in a damaged file, records
  // may overlap or claim to be longer than the file.
  std::uint64_t size_of(const std::string& name) {
    if (!reader_.hasRecord(name)) user_error(path_, ": truncated or damaged: it has no record ", printable(name));
    const std::uint64_t bytes = reader_.getRecordSize(name);
    if (bytes > budget_)
      user_error(path_, ": damaged, or compressed by another program: its records hold more than the file's ", size_,
                 " bytes");
    budget_ -= bytes;
    return bytes;
  }
  // Checks the CRC-32 of a record, because LibTorch does not check it.
  void check_sum(const std::string& record, const at::Tensor& bytes, const std::string& tensor) const {
    const auto expected = checksums_.find(record);
    if (expected == checksums_.end()) return;
    const std::string_view stored(static_cast<const char*>(bytes.const_data_ptr()),
                                  static_cast<std::size_t>(bytes.numel()));
    if (crc32(stored) != expected->second)
      user_error(path_, ": tensor ", printable(tensor), " is damaged: the checksum of its data (CRC-32) differs from "
                 "the file's: copy or download it again");
  }
  std::string record(const std::string& name) {
    std::string out(size_of(name), '\0');
    if (!out.empty()) reader_.getRecord(name, out.data(), out.size());
    return out;
  }

  const std::string& path_;
  std::uint64_t size_;
  std::uint64_t budget_;
  std::map<std::string, std::uint32_t> checksums_;
  caffe2::serialize::PyTorchStreamReader reader_;
  std::map<std::string, at::Tensor> storages_;
};

/// A call, found in a pickle, that makes a tensor.
struct TensorCall {
  std::string function;  // as in "torch._utils._rebuild_tensor_v2"
  const PickleValue* arguments;
};

/// Finds the model's tensors in a parsed pickle.
class PytorchModel {
 public:
  PytorchModel(const std::string& path, PytorchArchive& archive)
      : path_(path), archive_(archive), pickle_(archive.pickle()) {}

  std::map<std::string, at::Tensor> tensors(const std::string& state) {
    refuse_programs();
    collect(model(state), "", 0);
    if (tensors_.empty()) user_error(path_, ": its model has no tensors");
    return std::move(tensors_);
  }

 private:
  const PickleValue& at(std::uint32_t place) const { return pickle_.at(place); }
  static bool has_names(const PickleValue& value) { return value.kind == Kind::kDict || value.kind == Kind::kObject; }

  /// Calls use(name, value) for each entry of a dict, or for each entry and each attribute of an object.
  template <class Use>
  void for_each_name(const PickleValue& value, const Use& use) const {
    for (std::size_t i = 0; i + 1 < value.items.size(); i += 2)
      if (at(value.items[i]).kind == Kind::kText) use(at(value.items[i]).text, at(value.items[i + 1]));
    if (value.kind == Kind::kObject && at(value.state).kind == Kind::kDict) for_each_name(at(value.state), use);
  }

  /// Rejects a pickle that calls system functions. Nothing would be run anyway, but such a file is not a saved model.
  void refuse_programs() const {
    static const std::set<std::string, std::less<>> modules = {"os",     "posix",  "nt",  "subprocess", "sys",      "runpy",     "shutil",
                                                               "socket", "pty",    "ctypes", "importlib", "commands", "webbrowser"};
    static const std::set<std::string, std::less<>> functions = {"eval", "exec", "compile", "open", "__import__", "input"};
    for (const PickleValue& value : pickle_.values) {
      if (value.kind != Kind::kClass) continue;
      const std::string_view name = value.text;
      const std::string_view module = name.substr(0, name.find('.')), last = name.substr(name.rfind('.') + 1);
      const bool builtin = module == "builtins" || module == "__builtin__";
      if (modules.contains(module) || (builtin && functions.contains(last)))
        user_error(path_, ": its pickle calls ", printable(name), ", which no model needs: the file is refused, nothing was run");
    }
  }

  /// A state dict or module in a checkpoint, and its key ("state_dict") or keys ("ema.module").
  using State = std::pair<std::string, const PickleValue*>;

  static bool is_usual(const std::string& name) { return std::ranges::find(kUsualStates, name) != std::end(kUsualStates); }

  /// Returns the entries of a checkpoint that are modules or have tensors among their own entries. Of the attributes of a module, only
  /// those with a usual name count. `deeper` receives the same for each of the other entries.
  std::vector<State> states_in(const PickleValue& checkpoint, std::vector<State>* deeper, const std::string& prefix = "") const {
    std::vector<State> out;
    for_each_name(checkpoint, [&](const std::string& name, const PickleValue& value) {
      if (!has_names(value) || tensor_call(value) || (checkpoint.kind == Kind::kObject && !is_usual(name))) return;
      if (is_state(value) || (deeper != nullptr && is_usual(name) && states_in(value, nullptr).empty()))
        out.emplace_back(prefix + name, &value);
      else if (deeper != nullptr)
        for (State& inner : states_in(value, nullptr, name + ".")) deeper->push_back(std::move(inner));
    });
    return out;
  }

  /// Whether a value is a module or has tensors among its own entries.
  bool is_state(const PickleValue& value) const {
    bool found = false;
    for_each_name(value, [&](const std::string& part, const PickleValue& inner) {
      found |= tensor_call(inner).has_value() || (value.kind == Kind::kObject && part == "_modules");
    });
    return found;
  }

  /// Returns the number of tensors among a value's own entries.
  std::int64_t count_tensors(const PickleValue& value) const {
    std::int64_t count = 0;
    for_each_name(value, [&](const std::string&, const PickleValue& inner) { count += tensor_call(inner).has_value() ? 1 : 0; });
    return count;
  }

  static std::string names_of(const std::vector<State>& states) {
    std::vector<std::string> names;
    for (const State& state : states)
      if (names.size() < 20) names.push_back(printable(state.first, 40));
    return names.empty() ? "none with a name" : join_names(names);
  }

  /// Returns the state to read, or the pickle's root if this is the state.
  const PickleValue& model(const std::string& wanted) const {
    const PickleValue& root = at(pickle_.root);
    if (tensor_call(root)) user_error(path_, ": holds a single tensor, not a model");
    if (!has_names(root)) user_error(path_, ": holds neither a state dict nor a checkpoint or module");
    std::vector<State> deeper, states = states_in(root, &deeper), all = states;
    all.insert(all.end(), deeper.begin(), deeper.end());
    if (states.empty() || !wanted.empty()) states = all;
    const auto named = [&](const std::string& name) { return std::ranges::find(states, name, &State::first); };
    if (!wanted.empty()) {
      if (const auto chosen = named(wanted); chosen != states.end()) return *chosen->second;
      user_error(path_, ": has no state dict ", printable(wanted), "; it has ", names_of(states));
    }
    for (const char* name : kUsualStates)
      if (const auto usual = named(name); usual != states.end()) return said(*usual, all);
    std::vector<std::string> keys;
    for_each_name(root, [&](const std::string& name, const PickleValue&) {
      if (keys.size() < 20) keys.push_back(printable(name, 40));
    });
    // A checkpoint may also hold a few tensors of its own, such as the number of the epoch.
    const std::int64_t own = count_tensors(root);
    const bool is_larger = std::ranges::any_of(states, [&](const State& state) { return count_tensors(*state.second) > own; });
    if (root.kind != Kind::kDict || (own > 0 && !is_larger)) return root;
    if (states.size() == 1) return said(states.front(), all);
    if (states.size() > 1) user_error(path_, ": holds several state dicts, ", names_of(states), ": choose one with ", kHowToChoose);
    user_error(
        path_,
        ": no model in it: expected tensors, or a dict `state_dict`, `model_state_dict` or `model`; its keys: ",
        keys.empty() ? "none" : join_names(keys));
  }

  /// Returns the state that is read although the user chose none. If there are others, the log says which one it is, once for each file.
  const PickleValue& said(const State& state, const std::vector<State>& states) const {
    static std::mutex mutex;
    static std::set<std::string> reported;
    const std::lock_guard lock(mutex);
    if (states.size() > 1 && reported.insert(path_).second)
      log::info(path_, ": has the state dicts ", names_of(states), ", of which ", printable(state.first), " is read; choose with ",
                kHowToChoose);
    return *state.second;
  }

  const PickleValue* argument(const PickleValue& arguments, std::size_t i) const {
    return i < arguments.items.size() ? &at(arguments.items[i]) : nullptr;
  }

  /// If `value` is a tensor, possibly inside wrappers (parameter, subclass), returns the call that makes the tensor, otherwise nullopt.
  std::optional<TensorCall> tensor_call(const PickleValue& value) const {
    const PickleValue* object = &value;
    for (int wrapped = 0; wrapped < 8 && object != nullptr && object->kind == Kind::kObject; ++wrapped) {
      const std::string& function = at(object->maker).text;
      const PickleValue& arguments = at(object->arguments);
      if (function == "torch._tensor._rebuild_from_type_v2") {
        const PickleValue *inner = argument(arguments, 0), *given = argument(arguments, 2);
        if (inner == nullptr || given == nullptr) return std::nullopt;
        return TensorCall{inner->text, given};
      }
      if (!function.starts_with("torch._utils._rebuild_")) return std::nullopt;
      if (!function.starts_with("torch._utils._rebuild_parameter")) return TensorCall{function, &arguments};
      object = argument(arguments, 0);
    }
    return std::nullopt;
  }

  void collect(const PickleValue& value, const std::string& name, int depth) {
    if (++visits_ > kMostVisits || depth > kDeepest) user_error(path_, ": its model is too large or contains itself");
    if (const auto call = tensor_call(value)) {
      tensors_[name] = tensor(*call, name);
      return;
    }
    if (!has_names(value)) return;
    for_each_name(value, [&](const std::string& part, const PickleValue& inner) {
      if (part == "_metadata" || !has_names(inner)) return;
      const bool is_list = part == "_parameters" || part == "_buffers" || part == "_modules";  // these names are not part of tensor names
      const std::string joined = is_list ? name : name.empty() ? part : name + "." + part;
      if (joined.size() > kLongestTensorName) user_error(path_, ": the name of a tensor is too long");
      collect(inner, joined, depth + 1);
    });
  }

  [[noreturn]] void refuse(const std::string& name, const std::string& what) const {
    user_error(path_, ": tensor ", printable(name), " ", what);
  }

  std::vector<std::int64_t> sizes(const PickleValue* value, const std::string& name) const {
    if (value == nullptr || value->kind != Kind::kSequence || value->items.size() > 16)
      refuse(name, "has no sizes or strides: the file is damaged");
    std::vector<std::int64_t> out;
    for (const std::uint32_t item : value->items) {
      if (at(item).kind != Kind::kInteger || at(item).integer < 0) refuse(name, "has a negative size or stride");
      out.push_back(at(item).integer);
    }
    return out;
  }

  struct Stored {
    std::string key;
    std::optional<at::ScalarType> dtype;
  };

  /// Parses a persistent id: ("storage", class, key, device, count).
  Stored stored(const PickleValue* value, const std::string& name) const {
    if (value == nullptr || value->kind != Kind::kPersistent) refuse(name, "has no storage: the file is damaged");
    const PickleValue& id = at(value->arguments);
    const PickleValue *tag = argument(id, 0), *type = argument(id, 1), *key = argument(id, 2);
    if (key == nullptr || tag->text != "storage" || key->text.size() > kLongestTensorName)
      refuse(name, "has no storage: the file is damaged");
    return {key->text, type_named(type->text)};
  }

  /// Throws if offset, sizes and strides reach outside a storage of `elements` elements. As in PyTorch, a tensor may use an element several
  /// times (expand).
  void check_inside(std::int64_t offset, const std::vector<std::int64_t>& shape,
                    const std::vector<std::int64_t>& strides, std::int64_t elements, const std::string& name) const {
    std::int64_t count = 1, last = offset;
    bool inside = offset >= 0 && shape.size() == strides.size();
    for (std::size_t i = 0; inside && i < shape.size(); ++i) {
      std::int64_t step = 0;
      inside = !__builtin_mul_overflow(count, shape[i], &count) &&
               !__builtin_mul_overflow(std::max<std::int64_t>(shape[i] - 1, 0), strides[i], &step) &&
               !__builtin_add_overflow(last, step, &last);
    }
    if (!inside || (count > 0 && last >= elements))
      refuse(name, concat("reaches outside its storage of ", elements, " numbers: the file is damaged"));
  }

  at::Tensor tensor(const TensorCall& call, const std::string& name) {
    const std::string form = call.function.substr(call.function.rfind('.') + 1);
    const bool typed = form == "_rebuild_tensor_v3";
    if (form != "_rebuild_tensor" && form != "_rebuild_tensor_v2" && !typed)
      refuse(name, concat("is sparse, quantized or otherwise not a plain tensor (", printable(form), ")"));
    Stored place = stored(argument(*call.arguments, 0), name);
    const PickleValue *offset = argument(*call.arguments, 1), *dtype = argument(*call.arguments, 6);
    if (typed && dtype != nullptr) place.dtype = type_named(dtype->text);
    if (!place.dtype) refuse(name, "has a dtype that is not supported");
    if (offset == nullptr || offset->kind != Kind::kInteger) refuse(name, "has no offset: the file is damaged");
    const std::vector<std::int64_t> shape = sizes(argument(*call.arguments, 2), name);
    const std::vector<std::int64_t> strides = sizes(argument(*call.arguments, 3), name);

    const at::Tensor bytes = archive_.storage(place.key, name);
    const auto width = static_cast<std::int64_t>(c10::elementSize(*place.dtype));
    const std::int64_t elements = bytes.numel() / width;
    check_inside(offset->integer, shape, strides, elements, name);
    const at::Tensor all = bytes.narrow(0, 0, elements * width);
    if (place.dtype == at::kBool) all.clamp_max_(1);  // a bool with a byte other than 0 and 1 is undefined behavior
    return all.view(*place.dtype).as_strided(shape, strides, offset->integer);
  }

  const std::string& path_;
  PytorchArchive& archive_;
  Pickle pickle_;
  std::size_t visits_ = 0;
  std::map<std::string, at::Tensor> tensors_;
};

}  // namespace

std::map<std::string, at::Tensor> without_wrappers(std::map<std::string, at::Tensor> tensors, const std::vector<std::string_view>& outer) {
  std::map<std::string, at::Tensor> out;
  for (auto& [wrapped, tensor] : tensors) {
    std::string name = wrapped;
    for (const std::string_view wrapper : {"_orig_mod.", "_fsdp_wrapped_module.", "_checkpoint_wrapped_module."})
      for (std::size_t at = name.find(wrapper); at != std::string::npos; at = name.find(wrapper, at)) name.erase(at, wrapper.size());
    out[name] = std::move(tensor);
  }
  const auto wraps_all = [&](std::string_view wrapper) {
    const auto is_wrapped = [&](const auto& item) { return item.first.starts_with(wrapper) || item.first == kAverageCount; };
    return std::ranges::all_of(out, is_wrapped) && out.size() > out.count(std::string(kAverageCount));
  };
  for (auto found = std::ranges::find_if(outer, wraps_all); found != outer.end(); found = std::ranges::find_if(outer, wraps_all)) {
    std::map<std::string, at::Tensor> shorter;
    for (auto& [name, tensor] : out)
      if (name != kAverageCount) shorter[name.substr(found->size())] = std::move(tensor);
    out = std::move(shorter);
  }
  return out;
}

bool is_pytorch_file(const std::string& path) {
  const std::string head = first_bytes(path);
  const bool is_safetensors = head.size() > 8 && head[8] == '{';
  return !is_safetensors && (is_zip(head) || is_pickle(head) || is_tar(head));
}

std::map<std::string, at::Tensor> load_pytorch_file(const std::string& path, const std::string& state) {
  const std::string head = first_bytes(path);
  if (is_pickle(head)) refuse_old_format(path, "a pickle without an archive around it");
  if (is_tar(head)) refuse_old_format(path, "a tar archive");
  if (!is_zip(head)) user_error(path, ": not a PyTorch file");
  try {
    PytorchArchive archive(path);
    return without_wrappers(PytorchModel(path, archive).tensors(state));
  } catch (const c10::Error& error) {
    user_error(path, ": damaged or not a PyTorch file: ", first_line(error));
  }
}

std::map<std::string, at::Tensor> load_tensors(const std::string& path, const std::string& state) {
  if (is_pytorch_file(path)) return load_pytorch_file(path, state);
  if (!state.empty()) user_error(path, ": has no state dict ", state, ": only PyTorch files have several: leave the choice out");
  return without_wrappers(load_safetensors(path).tensors);
}

}  // namespace tessera::io
