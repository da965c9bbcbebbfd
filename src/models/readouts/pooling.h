#pragma once

#include <tessera/models/registry.h>

namespace tessera {

/// Settings of all read-outs that select or average token vectors. They have an optional projection `proj` [width, output_dim].
struct PoolingSettings {
  std::int64_t output_dim = 0;
};

template <class Visitor>
void fields(Visitor& v, PoolingSettings& s) {
  v("output_dim", s.output_dim, "width of a projection without bias after pooling; 0: none", config::at_least(0));
}

class PoolingReadOut : public ReadOut {
 public:
  PoolingReadOut(const PoolingSettings& settings, const ReadOutContext& context);
  ReadOutOutput forward(const Encoded& encoded, const ViewNeeds& needs) final;
  std::int64_t output_width() const override { return output_width_; }

 protected:
  /// Returns [B, width], 0 for rows without a real token.
  virtual at::Tensor pool(const Encoded& encoded) const = 0;

 private:
  std::int64_t output_width_;
  at::Tensor proj_;
};

/// `cls`: the class token, or position 0 if the encoder has no separate one.
class ClsReadOut : public PoolingReadOut {
 public:
  ClsReadOut(const PoolingSettings& settings, const ReadOutContext& context);
  bool reads_tokens() const override { return false; }

 private:
  at::Tensor pool(const Encoded& encoded) const override;
};

struct EosSettings : PoolingSettings {
  std::string position = "mask";
  std::optional<std::int64_t> eos_id;
};

template <class Visitor>
void fields(Visitor& v, EosSettings& s) {
  fields(v, static_cast<PoolingSettings&>(s));
  v("position", s.position,
    "mask: the last real token; ids: the first position of the largest id (OpenCLIP); without a mask always ids",
    config::one_of({"mask", "ids"}));
  v("eos_id", s.eos_id, "use the first position of this id instead (position 0 if there is none)",
    config::at_least(0));
}

/// `eos`: the end-of-text token.
class EosReadOut : public PoolingReadOut {
 public:
  EosReadOut(const EosSettings& settings, const ReadOutContext& context);

 private:
  at::Tensor pool(const Encoded& encoded) const override;
  at::Tensor find(const Encoded& encoded) const;

  EosSettings settings_;
};

struct PositionsSettings : PoolingSettings {
  std::int64_t skip_prefix = 0;
};

template <class Visitor>
void fields(Visitor& v, PositionsSettings& s) {
  fields(v, static_cast<PoolingSettings&>(s));
  v("skip_prefix", s.skip_prefix, "number of leading tokens left out; a class token counts as one and is always left out",
    config::at_least(0));
}

/// `gap`: the mean over real tokens. `max`: the maximum over real tokens; ties share the gradient evenly.
class GapReadOut : public PoolingReadOut {
 public:
  GapReadOut(const PositionsSettings& settings, const ReadOutContext& context);

 private:
  at::Tensor pool(const Encoded& encoded) const override;
  std::int64_t skip_;
};

class MaxReadOut : public PoolingReadOut {
 public:
  MaxReadOut(const PositionsSettings& settings, const ReadOutContext& context);

 private:
  at::Tensor pool(const Encoded& encoded) const override;
  std::int64_t skip_;
};

/// `cls_mean`: the class token concatenated with the mean over patches: [class token, mean], twice the tokens' width
/// (DINOv2's linear probes; dino.txt, Jose et al. 2025).
class ClsMeanReadOut : public ReadOut {
 public:
  /// Throws UserError for an encoder without a class token.
  ClsMeanReadOut(const config::NoSettings& settings, const ReadOutContext& context);
  ReadOutOutput forward(const Encoded& encoded, const ViewNeeds& needs) override;
  std::int64_t output_width() const override { return 2 * width_; }

 private:
  std::int64_t width_;
};

/// `none`: returns no vector. It is for objectives that read the tokens.
class NoReadOut : public ReadOut {
 public:
  explicit NoReadOut(const ReadOutContext& context) : width_(context.width) {}
  ReadOutOutput forward(const Encoded&, const ViewNeeds&) override { return {}; }
  std::int64_t output_width() const override { return width_; }
  bool reads_tokens() const override { return false; }

 private:
  std::int64_t width_;
};

}  // namespace tessera
