#include "dapple_models.hpp"

#include <utility>

namespace skein::bench {
namespace {

/// A layer: its share of the model's time, and its sizes for one row.
struct Row {
  std::string name;
  double time_share = 1;
  double parameter_mb = 0;   // Millions of bytes.
  double activation_mb = 0;  // Output.
  double stash_mb = 0;       // Kept from forward to backward.
};

/// `total_us`: F + B of the whole model for `rows` rows, of which F takes `forward_part`. The
/// backward's halves, of the input and of the weights, are equal.
DappleModel model_of(std::string name, int64_t global_batch_rows, int64_t rows, double total_us,
                     double forward_part, const std::vector<Row>& layers) {
  DappleModel model{std::move(name), global_batch_rows, {}};
  plans::Profile& profile = model.profile;
  profile.source = "written by hand";
  profile.device = "V100";
  profile.rows = {rows};
  double shares = 0;
  for (const Row& layer : layers) shares += layer.time_share;
  for (const Row& layer : layers) {
    const double own_us = total_us * layer.time_share / shares;
    const double backward_us = own_us * (1 - forward_part);
    plans::LayerProfile& own = profile.layers.emplace_back();
    own.name = layer.name;
    own.at = {{own_us * forward_part, backward_us / 2, backward_us / 2}};
    own.parameter_bytes = static_cast<int64_t>(layer.parameter_mb * 1e6);
    own.activation_row_bytes = static_cast<int64_t>(layer.activation_mb * 1e6);
    own.stash_row_bytes = static_cast<int64_t>(layer.stash_mb * 1e6);
  }
  return model;
}

std::string numbered(const char* name, int64_t index) {
  return std::string(name) + " " + std::to_string(index);
}

/// 1 / 3 of the time forward, where the profiles give totals only: a backward is two products for
/// each one of the forward.
constexpr double kThird = 1.0 / 3;

/// Profile: about 100 ms for 32 rows, 100 MB. Layers: stem, 16 bottleneck blocks, classifier (He et
/// al., CVPR'16, table 1); time in proportion to multiply-adds (about equal per block); stash: four
/// times the output of a block, for its three convolutions, norms and activations.
DappleModel resnet_50() {
  std::vector<Row> layers{{"stem", 0.12, 0.04, 0.80, 6.4}};
  const struct {
    int blocks;
    double first_mb, other_mb, out_mb;  // Parameters of the first and other blocks; output.
  } groups[] = {
      {3, 0.30, 0.28, 3.21}, {4, 1.52, 1.12, 1.61}, {6, 6.05, 4.47, 0.80}, {3, 24.2, 17.9, 0.40}};
  for (const auto& group : groups) {
    for (int b = 0; b < group.blocks; ++b) {
      layers.push_back({numbered("block", static_cast<int64_t>(layers.size())), 0.25,
                        b == 0 ? group.first_mb : group.other_mb, group.out_mb, 4 * group.out_mb});
    }
  }
  layers.push_back({"classifier", 0.002, 8.2, 0.004, 0.01});
  return model_of("ResNet-50", 2048, 32, 100e3, kThird, layers);
}

/// Profile: 147.6 ms for 32 rows, 548 MiB of which the first fully connected layer has 392. Layers:
/// 16 convolutions (pooling counts with the one in front) and 3 fully connected ones (Simonyan,
/// Zisserman, ICLR'15, configuration E, 224 x 224); time in proportion to multiply-adds; stash: two
/// copies of a convolution's output in front of pooling.
DappleModel vgg_19() {
  std::vector<Row> layers;
  const struct {
    int convolutions;
    double side, channels, channels_in;
  } groups[] = {
      {2, 224, 64, 3}, {2, 112, 128, 64}, {4, 56, 256, 128}, {4, 28, 512, 256}, {4, 14, 512, 512}};
  for (const auto& group : groups) {
    for (int c = 0; c < group.convolutions; ++c) {
      const double channels_in = c == 0 ? group.channels_in : group.channels;
      const double weights = 9 * channels_in * group.channels;
      const double out_mb = group.side * group.side * group.channels * 4 / 1e6;
      const bool pools = c + 1 == group.convolutions;
      layers.push_back({numbered("convolution", static_cast<int64_t>(layers.size())),
                        group.side * group.side * weights / 1e9, weights * 4 / 1e6,
                        pools ? out_mb / 4 : out_mb, 2 * out_mb});
    }
  }
  layers.push_back({"fully connected 1", 0.1028, 411.0, 0.0164, 0.033});
  layers.push_back({"fully connected 2", 0.0168, 67.1, 0.0164, 0.033});
  layers.push_back({"fully connected 3", 0.0041, 16.4, 0.0040, 0.008});
  return model_of("VGG-19", 2048, 32, 147.6e3, kThird, layers);
}

/// Profile: 249 ms for 64 rows, 1.16 GB. Layers: 8 of the encoder, 8 of the decoder (Wu et al.,
/// 2016), the decoder's 1.45 times as long for its attention (the paper's text, as remembered, not
/// checked); embeddings of 32,000 words of 1024 floats in the first layer of each half and the
/// softmax in the last one, the other parameters even. Output: 100 steps of 1024 floats a row;
/// stash: four times that, for the gates.
DappleModel gnmt_16() {
  std::vector<Row> layers;
  for (int64_t l = 0; l < 16; ++l) {
    const bool embeds = l == 0 || l == 8 || l == 15;
    layers.push_back({numbered(l < 8 ? "encoder" : "decoder", l % 8), l < 8 ? 1.0 : 1.45,
                      (1160 - 3 * 131.0) / 16 + (embeds ? 131.0 : 0), 0.41, 1.64});
  }
  return model_of("GNMT-16", 1024, 64, 249e3, kThird, layers);
}

/// Profile: per layer 2.69 ms F and 4.47 ms B for 2 rows, 50.4 MB, 4.3 MB of output; 2.55 GB in
/// all, what is left being the embedding in front of the first layer. Stash: what the memory of the
/// paper's two-stage runs leaves per row and layer, (12.1 GB - 24 layers' state) / 96.
DappleModel bert_48() {
  std::vector<Row> layers;
  for (int64_t l = 0; l < 48; ++l) {
    layers.push_back({numbered("layer", l), 1, l == 0 ? 181.0 : 50.4, 2.15, 73});
  }
  return model_of("BERT-48", 64, 2, 48 * 7.16e3, 2.69 / 7.16, layers);
}

/// Profile: per layer 3.4 ms F and 4.9 ms B for one row, 52 MB; 2.0 GB in all, the rest being the
/// embedding. Output: 512 positions of 1024 floats in two streams; stash as BERT's, whose shape it
/// has.
DappleModel xlnet_36() {
  std::vector<Row> layers;
  for (int64_t l = 0; l < 36; ++l) {
    layers.push_back({numbered("layer", l), 1, l == 0 ? 180.0 : 52.0, 4.2, 73});
  }
  return model_of("XLNet-36", 128, 1, 36 * 8.3e3, 3.4 / 8.3, layers);
}

/// Profile: 168 ms for one row, 3.73 GB. Layers: 36 cells in three groups whose channels double
/// (Real et al., AAAI'19), so a cell of a group has four times the parameters of one of the group
/// in front and half of its output; times rise evenly by 40% from the first to the last cell (the
/// paper's text, as remembered, not checked). Output: 11.2 MB in the middle group; stash: eight
/// times the output, for the operations of a cell.
DappleModel amoebanet_36() {
  std::vector<Row> layers;
  const double parameter_mb[] = {3730.0 / 21 / 12, 3730.0 * 4 / 21 / 12, 3730.0 * 16 / 21 / 12};
  const double output_mb[] = {22.4, 11.2, 5.6};
  for (int64_t l = 0; l < 36; ++l) {
    const int64_t group = l / 12;
    layers.push_back({numbered("cell", l), 1 + 0.4 * static_cast<double>(l) / 35,
                      parameter_mb[group], output_mb[group], 8 * output_mb[group]});
  }
  return model_of("AmoebaNet-36", 128, 1, 168e3, kThird, layers);
}

}  // namespace

std::vector<DappleModel> dapple_models() {
  return {resnet_50(), vgg_19(), gnmt_16(), bert_48(), xlnet_36(), amoebanet_36()};
}

}  // namespace skein::bench
