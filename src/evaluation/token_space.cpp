#include <algorithm>
#include <set>

#include <ATen/ATen.h>

#include "src/base/digest.h"
#include "src/evaluation/tasks/pass.h"
#include "src/evaluation/token_space.h"
#include <tessera/base/text.h>

namespace tessera {
namespace {

std::vector<std::int64_t> without(const std::vector<std::int64_t>& ids, const std::vector<std::int64_t>& special) {
  std::vector<std::int64_t> out;
  for (const std::int64_t id : ids)
    if (!std::binary_search(special.begin(), special.end(), id)) out.push_back(id);
  return out;
}

/// Returns the text that an id adds after a whole word, such as " red" or "ing".
std::string continuation_text(const Tokenizer& tokenizer, std::vector<std::int64_t> word, std::int64_t id) {
  const std::string first = tokenizer.decode(word);
  word.push_back(id);
  const std::string both = tokenizer.decode(word);
  return both.starts_with(first) ? both.substr(first.size()) : "";
}

std::string name_of(const Tokenizer& tokenizer, const std::vector<std::int64_t>& word, std::int64_t id) {
  const std::string added = continuation_text(tokenizer, word, id);
  if (added.empty() || added.find('\n') != std::string::npos) return concat("#", id);
  if (strip(added).empty()) return "\u2581";  // the token is only a space, which SentencePiece writes in this way
  return added.starts_with(' ') ? std::string(strip(added)) : "##" + added;
}

/// Returns a hash of the tokenizer and the templates. Together with the model, they determine the embeddings of a vocabulary's texts.
std::uint64_t mark_of(const Tokenizer& tokenizer, const TextList& templates) {
  std::uint64_t mark = fingerprint(tokenizer.vocabulary_bytes(), fingerprint(tokenizer.name()));
  for (const std::string& form : templates.items) mark = fingerprint(form, mark);
  return mark;
}

}  // namespace

std::vector<std::string> vocabulary_names(const Tokenizer& tokenizer, std::int64_t count) {
  const std::vector<std::int64_t> word = without(tokenizer.encode("a"), tokenizer.special_ids());
  std::set<std::string> taken;
  std::vector<std::string> names;
  for (std::int64_t id = 0; id < count; ++id) {
    std::string name = id < tokenizer.vocab_size() ? name_of(tokenizer, word, id) : concat("#", id);
    if (taken.contains(name)) name += concat("#", id);
    taken.insert(name);
    names.push_back(std::move(name));
  }
  return names;
}

void require_token_space(const Embedder& model, const std::string& option) {
  if (model.token_space() == 0)
    user_error(option,
               ": this model's embeddings are not weights of vocabulary tokens: take one whose towers both read out by "
               "token_projection, with projection: none, as in configs/shapes/stair.yaml");
}

TokenSpace::TokenSpace(const Embedder& model, const EvaluationContext& context, const VocabularySettings& settings,
                       const std::string& task)
    : model_(model) {
  const bool as_it_is = model.token_space() > 0;
  if (settings.vocabulary) {
    if (as_it_is)
      user_error(task, ".vocabulary: this model's embeddings are weights of its own vocabulary: leave the key out");
    own_ = tokenizers().make(*settings.vocabulary, task + ".vocabulary", TokenizerContext{});
  }
  tokenizer_ = own_ != nullptr ? own_.get() : model.tokenizer();
  if (tokenizer_ == nullptr)
    user_error(task, ".vocabulary is not set, and this model's own vocabulary is not known: set it, for example to {name: ",
               "wordpiece, vocab: vocab.txt}");
  read_vocabulary(!as_it_is);
  if (as_it_is) return;

  const std::uint64_t mark = mark_of(*tokenizer_, settings.templates);
  auto* shared = context.vocabulary_texts.get();
  if (shared != nullptr && shared->contains(mark)) {
    texts_ = shared->at(mark);
    return;
  }
  texts_ = embed_classes(model, names_, settings.templates);
  if (shared != nullptr) shared->emplace(mark, texts_);
}

/// Reads the entries of the vocabulary. With `by_text`, tokens with the same text ("car", "##car") share one entry, and tokens
/// without text have no entry.
void TokenSpace::read_vocabulary(bool by_text) {
  const std::vector<std::int64_t> special = tokenizer_->special_ids();
  std::int64_t count = tokenizer_->vocab_size();
  if (!by_text) count = std::min(count, model_.token_space());
  std::vector<std::string> names;
  if (!by_text) names = vocabulary_names(*tokenizer_, count);
  std::map<std::string, std::int64_t> entry_of;
  for (std::int64_t id = 0; id < count; ++id) {
    if (std::binary_search(special.begin(), special.end(), id)) continue;
    const std::string name =
        by_text ? std::string(strip(tokenizer_->decode({id}))) : names[static_cast<std::size_t>(id)];
    if (name.empty()) continue;
    const auto [same, fresh] = entry_of.emplace(name, size());
    entries_[id] = same->second;
    if (!fresh) continue;
    ids_.push_back(id);
    names_.push_back(name);
  }
}

std::vector<std::int64_t> TokenSpace::entries_of(const std::string& text) const {
  std::vector<std::int64_t> out;
  for (const std::int64_t id : tokenizer_->encode(text))
    if (const auto found = entries_.find(id); found != entries_.end()) out.push_back(found->second);
  return out;
}

at::Tensor TokenSpace::activations(const TowerFeatures& images) const {
  if (texts_.global.defined()) return model_.similarity(images, texts_);
  return images.global.index_select(1, at::tensor(ids_, at::kLong));
}

}  // namespace tessera
