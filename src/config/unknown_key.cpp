// Suggestions for unknown keys and values.
#include <algorithm>
#include <map>

#include "src/base/printable.h"
#include <tessera/base/text.h>
#include <tessera/config/fields.h>

namespace tessera::config {
namespace {

// Maps names from other programs (open_clip_train, Hugging Face, Lightning) to the matching names in Tessera.
const std::map<std::string, std::vector<std::string>>& words() {
  static const std::map<std::string, std::vector<std::string>> table = {
      {"learning_rate", {"lr"}},
      {"base_lr", {"lr"}},
      {"wd", {"weight_decay"}},
      {"warmup", {"warmup_steps"}},
      {"max_steps", {"steps"}},
      {"num_steps", {"steps"}},
      {"max_epochs", {"epochs"}},
      {"num_epochs", {"epochs"}},
      {"batchsize", {"batch_size"}},
      {"per_device_train_batch_size", {"batch_size"}},
      {"workers", {"threads"}},
      {"num_workers", {"threads"}},
      {"accum_freq", {"accumulation"}},
      {"gradient_accumulation_steps", {"accumulation"}},
      {"grad_clip_norm", {"clip_norm"}},
      {"max_grad_norm", {"clip_norm"}},
      {"amp", {"precision"}},
      {"dtype", {"precision"}},
      {"output_dir", {"folder"}},
      {"logs", {"folder"}},
      {"loss", {"objective"}},
      {"train_data", {"train"}},
      {"val_data", {"validation"}},
      {"val", {"validation"}},
      {"pretrained", {"weights"}},
      {"save_frequency", {"every_steps"}},
      {"save_steps", {"every_steps"}},
      {"bfloat16", {"bf16"}},
      {"bf16", {"bfloat16"}},
      {"amp_bf16", {"bf16", "bfloat16"}},
      {"float16", {"fp16"}},
      {"half", {"fp16", "float16"}},
      {"fp16", {"float16"}},
      {"fp32", {"float32"}},
      {"float", {"float32"}},
      {"gpu", {"cuda"}},
  };
  return table;
}

std::string last_name(const std::string& path) {
  return path.substr(path.rfind('.') + 1);
}

// Returns whether `path` is a useless suggestion for the unknown key at `where` ("file:line: path"). A suggestion is useless if it is the
// unknown key's own path, or if it is a top-level key while the unknown key is nested.
bool is_path_of(const std::string& where, const std::string& path) {
  const std::string own = where.substr(where.rfind(' ') + 1);
  return own == path || (own.find('.') != std::string::npos && path.find('.') == std::string::npos);
}

std::string did_you_mean(const std::vector<std::string>& names) {
  std::string text;
  for (std::size_t i = 0; i < names.size(); ++i)
    text += (i == 0 ? "" : i + 1 == names.size() ? " or " : ", ") + names[i];
  return ": did you mean " + text + "?";
}

std::string beside_text(const std::string& key, const std::vector<std::string>& beside) {
  const std::string same = same_meaning(key, beside);
  return same.empty() ? suggestion(key, beside) : did_you_mean({same});
}

}  // namespace

std::vector<std::string> other_words(const std::string& name) {
  const auto found = words().find(name);
  return found == words().end() ? std::vector<std::string>{} : found->second;
}

std::string same_meaning(const std::string& wanted, const std::vector<std::string>& names) {
  for (const std::string& word : other_words(wanted))
    if (contains(names, word)) return word;
  return "";
}

UnknownKey::UnknownKey(const Node& node, const std::string& path, const std::string& key,
                       const std::vector<std::string>& beside)
    : UnknownKey(beside_text(key, beside),
                 node.mark().text() + (node.mark().text().empty() ? "" : ": ") + printable(join_path(path, key)), key,
                 !same_meaning(key, beside).empty()) {}

UnknownKey::UnknownKey(std::string text, std::string where, std::string key, bool certain)
    : UserError(where + ": unknown key" + printable(text, 2000)),
      where_(std::move(where)),
      key_(std::move(key)),
      certain_(certain) {}

UnknownKey UnknownKey::seen_among(const std::vector<std::string>& paths) const {
  if (certain_) return *this;
  std::vector<std::string> wanted = other_words(key_), meant;
  wanted.insert(wanted.begin(), key_);
  for (const std::string& path : paths)
    if (!is_path_of(where_, path) && contains(wanted, last_name(path)) && !contains(meant, path)) meant.push_back(path);
  constexpr std::size_t most = 4;
  if (meant.empty() || meant.size() > most) return *this;
  return UnknownKey(did_you_mean(meant), where_, key_, true);
}

}  // namespace tessera::config
