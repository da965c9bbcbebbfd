#include "src/objectives/common/caption_relation.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include "src/objectives/caption_labels.h"

namespace tessera {
namespace {

CaptionRelation::Duplicates duplicates_named(const std::string& name) {
  if (name == "masked") return CaptionRelation::Duplicates::masked;
  return name == "positive" ? CaptionRelation::Duplicates::positive : CaptionRelation::Duplicates::negative;
}

// Returns false if all numbers differ. On a GPU it always returns true, because the check would cost more than it saves.
bool may_repeat(const at::Tensor& numbers) {
  if (!numbers.is_cpu()) return true;
  const at::Tensor sorted = std::get<0>(numbers.flatten().sort());
  return (sorted.slice(0, 1) == sorted.slice(0, 0, -1)).any().item<bool>();
}

at::Tensor checked_groups(const at::Tensor& numbers, at::IntArrayRef sizes, const char* objective, const char* name) {
  TORCH_CHECK(numbers.scalar_type() == at::kLong && numbers.sizes() == sizes, objective, ": ", name, " must be ", sizes,
              " int64, got ", numbers.sizes(), " ", numbers.scalar_type());
  return numbers;
}

}  // namespace

// Returns true where a caption is a duplicate of one of the row's own captions, or belongs to an image that equals the row's image. The
// result may also be true for the row's own captions.
at::Tensor CaptionRelation::same(std::int64_t row, std::int64_t rows, std::int64_t column, std::int64_t columns) const {
  at::Tensor out = at::zeros({rows, columns, captions()}, present.options());
  if (image_group.defined())
    out.logical_or_(
        (image_group.narrow(0, row, rows).unsqueeze(1) == image_group.narrow(0, column, columns)).unsqueeze(2));
  if (!caption_ids.defined()) return out;
  const at::Tensor ids = caption_ids.narrow(0, column, columns);  // [columns, K]
  for (std::int64_t k = 0; k < own_ids.size(1); ++k) {
    const auto of_rows = [&](const at::Tensor& all) { return all.narrow(0, row, rows).select(1, k).view({rows, 1, 1}); };
    out.logical_or_((of_rows(own_ids) == ids).logical_and_(of_rows(own_present)));
  }
  return out;
}

CaptionRelation::Tile CaptionRelation::tile(std::int64_t row, std::int64_t rows, std::int64_t column,
                                            std::int64_t columns) const {
  Tile out;
  const at::Tensor here = present.narrow(0, column, columns);  // [columns, K]
  if (some_absent) out.left_out = here.logical_not().expand({rows, columns, captions()});
  at::Tensor in_row;  // [rows, 1, 1]
  if (rows_present.defined()) {
    in_row = rows_present.narrow(0, row, rows).view({rows, 1, 1});
    const at::Tensor absent = in_row.logical_not().expand({rows, columns, captions()});
    out.left_out = out.left_out.defined() ? out.left_out.logical_or(absent) : absent;
  }
  if (duplicates == Duplicates::negative || !has_duplicates()) return out;
  const at::Tensor others = same(row, rows, column, columns).logical_and_(here);
  if (in_row.defined()) others.logical_and_(in_row);
  own_of(others, row, column).fill_(false);
  if (duplicates == Duplicates::positive) {
    out.further = others;
  } else {
    out.left_out = out.left_out.defined() ? out.left_out.logical_or(others) : others;
  }
  return out;
}

at::Tensor CaptionRelation::values(std::int64_t row, std::int64_t rows, std::int64_t column,
                                   std::int64_t columns) const {
  const Tile part = tile(row, rows, column, columns);
  at::Tensor out = at::full({rows, columns, captions()}, -1, present.options().dtype(at::kLong));
  own_of(out, row, column).fill_(1);
  if (part.further.defined()) out.masked_fill_(part.further, 1);
  if (part.left_out.defined()) out.masked_fill_(part.left_out, 0);
  return out;
}

at::Tensor CaptionRelation::own_of(const at::Tensor& values, std::int64_t row, std::int64_t column) {
  const std::int64_t offset = row - column;
  if (offset >= values.size(1) || -offset >= values.size(0)) return values.flatten(0, 1).narrow(0, 0, 0);
  return values.diagonal(offset, 0, 1).t();
}

at::Tensor CaptionRelation::own_pairs() const {
  return rows_present.defined() ? present.logical_and(rows_present.unsqueeze(1)) : present;
}

at::Tensor CaptionRelation::mean_over_captions(const at::Tensor& sum, const ProcessGroup& group) const {
  return sum * group.size() / own_pairs().sum().clamp_min(1);
}

void CaptionRelation::save(torch::autograd::AutogradContext* ctx) const {
  ctx->saved_data["present"] = present;
  ctx->saved_data["rows_present"] = rows_present;
  ctx->saved_data["image_group"] = image_group;
  ctx->saved_data["caption_ids"] = caption_ids;
  ctx->saved_data["own_ids"] = own_ids;
  ctx->saved_data["own_present"] = own_present;
  ctx->saved_data["duplicates"] = static_cast<std::int64_t>(duplicates);
  ctx->saved_data["some_absent"] = some_absent;
}

CaptionRelation CaptionRelation::saved(torch::autograd::AutogradContext* ctx) {
  auto& data = ctx->saved_data;
  CaptionRelation out;
  out.present = data["present"].toTensor();
  out.rows_present = data["rows_present"].toTensor();
  out.image_group = data["image_group"].toTensor();
  out.caption_ids = data["caption_ids"].toTensor();
  out.own_ids = data["own_ids"].toTensor();
  out.own_present = data["own_present"].toTensor();
  out.duplicates = static_cast<Duplicates>(data["duplicates"].toInt());
  out.some_absent = data["some_absent"].toBool();
  return out;
}

CaptionRelation caption_relation(const at::Tensor& present, const at::Tensor& image_group,
                                 const at::Tensor& caption_ids, const std::string& duplicates, const char* objective,
                                 const ProcessGroup& group) {
  CaptionRelation out;
  out.present = group.all_gather(present);
  out.some_absent = !out.present.is_cpu() || !out.present.all().item<bool>();
  out.duplicates = duplicates_named(duplicates);
  if (out.duplicates == CaptionRelation::Duplicates::negative) return out;
  const auto gathered = [&](const at::Tensor& own, at::IntArrayRef sizes, const char* name) {
    if (!own.defined()) return at::Tensor();
    const at::Tensor all = group.all_gather(checked_groups(own, sizes, objective, name));
    return may_repeat(all) ? all : at::Tensor();
  };
  out.image_group = gathered(image_group, present.sizes().slice(0, 1), "image_group");
  out.caption_ids = out.own_ids = gathered(caption_ids, present.sizes(), "caption_ids");
  out.own_present = out.present;
  return out;
}

at::Tensor caption_labels(const at::Tensor& present, const at::Tensor& image_ids, const at::Tensor& caption_ids,
                          const std::string& duplicates) {
  const CaptionRelation relation = caption_relation(present, image_ids, caption_ids, duplicates, "caption_labels", {});
  return relation.values(0, relation.images(), 0, relation.images()).flatten(1);
}

}  // namespace tessera
