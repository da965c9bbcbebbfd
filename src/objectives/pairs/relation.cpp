#include "src/objectives/pairs/relation.h"

#include <ATen/ATen.h>


namespace tessera {
namespace {

// Gathers `own`, groups of this rank. Returns an undefined tensor if all numbers differ.
at::Tensor gathered_groups(const at::Tensor& own, at::IntArrayRef sizes, const char* objective, const char* name,
                           const ProcessGroup& group) {
  if (!own.defined()) return own;
  TORCH_CHECK(own.scalar_type() == at::kLong && own.sizes() == sizes, objective, ": ", name, " must be ",
              sizes.size() == 1 ? "[B] = " : "[B, K] = ", sizes, " int64, got ", own.sizes(), " ", own.scalar_type());
  const at::Tensor all = group.all_gather(own);
  if (!all.is_cpu()) return all;
  const at::Tensor sorted = std::get<0>(all.flatten().sort());
  return (sorted.slice(0, 1) == sorted.slice(0, 0, -1)).any().item<bool>() ? all : at::Tensor();
}

at::Tensor joined_masks(const at::Tensor& a, const at::Tensor& b) {
  return a.defined() && b.defined() ? a.logical_or(b) : a.defined() ? a : b;
}

}  // namespace

PairRelation PairRelation::of_pairs(const at::Tensor& present) {
  PairRelation out;
  out.present = out.own_present = present.unsqueeze(1);
  out.rows_present = present;
  out.some_absent = true;
  return out;
}

PairRelation::Tile PairRelation::tile(std::int64_t row, std::int64_t rows, std::int64_t column, std::int64_t columns,
                                      std::int64_t slot) const {
  const auto of_rows = [&](const at::Tensor& all) { return all.narrow(0, row, rows).unsqueeze(1); };
  const auto of_columns = [&](const at::Tensor& all) {
    return all.select(1, slot).narrow(0, column, columns).unsqueeze(0);
  };
  Tile out;
  if (some_absent) out.left_out = of_columns(present).logical_not();
  if (rows_present.defined()) out.left_out = joined_masks(out.left_out, of_rows(rows_present).logical_not());
  if (duplicates == Duplicates::negative || !has_duplicates()) return out;

  at::Tensor same;  // [rows, columns]
  if (image_group.defined()) same = of_rows(image_group) == of_columns(image_group.unsqueeze(1).expand_as(present));
  for (std::int64_t k = 0; text_group.defined() && k < own_group.size(1); ++k) {
    const at::Tensor equal = of_rows(own_group.select(1, k)) == of_columns(text_group);
    same = joined_masks(same, equal.logical_and_(of_rows(own_present.select(1, k))));
  }
  if (out.left_out.defined()) same = same.logical_and(out.left_out.logical_not());
  const std::int64_t offset = row - column;
  if (offset < columns && -offset < rows) same.diagonal(offset).fill_(false);
  (duplicates == Duplicates::positive ? out.further : out.left_out) =
      duplicates == Duplicates::positive ? same : joined_masks(out.left_out, same);
  return out;
}

at::Tensor PairRelation::values(std::int64_t row, std::int64_t rows) const {
  const at::Tensor out = at::full({rows, images(), texts()}, -1, present.options().dtype(at::kLong));
  out.diagonal(row, 0, 1).fill_(1);
  for (std::int64_t slot = 0; slot < texts(); ++slot) {
    const Tile part = tile(row, rows, 0, images(), slot);
    if (part.further.defined()) out.select(2, slot).masked_fill_(part.further, 1);
    if (part.left_out.defined()) out.select(2, slot).masked_fill_(part.left_out, 0);
  }
  return out;
}

at::Tensor PairRelation::own_pairs() const {
  return rows_present.defined() ? present.logical_and(rows_present.unsqueeze(1)) : present;
}

at::Tensor PairRelation::own_pairs(const ProcessGroup& group) const {
  const std::int64_t batch = images() / group.size();
  return own_pairs().narrow(0, group.rank() * batch, batch);
}

at::Tensor PairRelation::mean_of(const at::Tensor& sum, const ProcessGroup& group) const {
  if (!some_absent && !rows_present.defined()) return sum * group.size() / static_cast<double>(present.numel());
  return sum * group.size() / own_pairs().sum().clamp_min(1);
}

PairRelation::Duplicates duplicates_named(const std::string& name) {
  if (name == "masked") return PairRelation::Duplicates::masked;
  return name == "positive" ? PairRelation::Duplicates::positive : PairRelation::Duplicates::negative;
}

void add_duplicates(PairRelation& relation, PairRelation::Duplicates duplicates, const at::Tensor& image_group,
                    const at::Tensor& text_group, const char* objective, const ProcessGroup& group) {
  relation.duplicates = duplicates;
  if (duplicates == PairRelation::Duplicates::negative) return;
  const std::int64_t batch = relation.images() / group.size();
  const bool plain = relation.texts() == 1 && text_group.defined() && text_group.dim() == 1;
  relation.image_group = gathered_groups(image_group, {batch}, objective, "image_group", group);
  const at::Tensor texts =
      plain ? gathered_groups(text_group, {batch}, objective, "caption_group", group)
            : gathered_groups(text_group, {batch, relation.texts()}, objective, "captions_group", group);
  relation.text_group = relation.own_group = plain && texts.defined() ? texts.unsqueeze(1) : texts;
  relation.own_present = relation.present;
}

at::Tensor caption_labels(const at::Tensor& present, const at::Tensor& image_ids, const at::Tensor& caption_ids,
                          const std::string& duplicates) {
  PairRelation relation;
  relation.present = present;
  relation.some_absent = true;
  add_duplicates(relation, duplicates_named(duplicates), image_ids, caption_ids, "caption_labels", {});
  return relation.values(0, relation.images()).flatten(1);
}

}  // namespace tessera
