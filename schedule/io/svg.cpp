#include "schedule/io/svg.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <initializer_list>
#include <limits>
#include <set>

#include "schedule/io/json_reader.h"
#include "schedule/io/style.h"

namespace penstock::schedule {
namespace {

constexpr double kMargin = 12.0;
constexpr double kHeadingHeight = 56.0;
constexpr double kBoxHeight = 26.0;
constexpr double kMarksHeight = 8.0;
constexpr double kRowPitch = kBoxHeight + kMarksHeight + 6.0;
constexpr double kAxisHeight = 30.0;
constexpr double kLegendLine = 20.0;
constexpr double kColumnsWidth = 92.0;  // idle and peak, right of the rows
constexpr double kFontSize = 11.0;
constexpr double kSmallestFont = 6.0;
constexpr double kBandHeight = 5.0;
constexpr double kLeastWidth = 640.0;
constexpr double kMostWidth = 1600.0;  // unless the user asks for more
constexpr double kLargestWidth = 100'000.0;

// About as wide as sans-serif fonts are.
double text_width(std::string_view text, double font_size) {
  double ems = 0.0;
  for (const char c : text) ems += c == 'W' ? 0.95 : c >= 'A' && c <= 'Z' ? 0.68 : 0.58;
  return ems * font_size;
}

// At most two digits behind the point: a hundredth of a pixel.
std::string pixels(double value) {
  std::array<char, 400> text{};  // the longest double has 309 digits before the point
  const auto end =
      std::to_chars(text.data(), text.data() + text.size(), value, std::chars_format::fixed, 2);
  std::string out(text.data(), end.ptr);
  if (!std::isfinite(value)) return out;
  while (out.back() == '0') out.pop_back();
  if (out.back() == '.') out.pop_back();
  return out == "-0" ? "0" : out;
}

std::string number(double value, int digits = 6) {
  std::array<char, 32> text{};
  const auto end = std::to_chars(text.data(), text.data() + text.size(), value,
                                 std::chars_format::general, digits);
  return {text.data(), end.ptr};
}

std::string escaped(std::string_view text) {
  std::string out;
  for (const char c : valid_utf8(text)) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '&') {
      out += "&amp;";
    } else if (c == '<') {
      out += "&lt;";
    } else if (c == '"') {
      out += "&quot;";
    } else {
      out += byte < 0x20 ? ' ' : c;
    }
  }
  return out;
}

// A round number such that a span has about `wanted` of it.
double tick_distance(double span, double wanted) {
  const double rough = span / wanted;
  const double power = std::pow(10.0, std::floor(std::log10(rough)));
  for (const double factor : {1.0, 2.0, 5.0}) {
    if (factor * power >= rough) return factor * power;
  }
  return 10.0 * power;
}

class Picture {
 public:
  Picture(const Trace& trace, const SvgOptions& options)
      : trace_(trace), summary_(summarize(trace)), num_chunks_(num_chunks(trace)) {
    for (const TraceRank& rank : trace.ranks) {
      label_width_ = std::max(label_width_, text_width(rank.name, kFontSize));
      for (const TraceSpan& span : rank.spans) opcodes_.insert(span.instruction.opcode);
    }
    left_ = kMargin + label_width_ + 8.0;
    duration_ = std::max(summary_.end - summary_.start, std::numeric_limits<double>::min());
    const double width = options.width > 0.0 ? options.width : natural_width();
    chart_width_ = std::max(width - left_ - kColumnsWidth - kMargin, 60.0);
    rows_end_ = kHeadingHeight + static_cast<double>(trace.ranks.size()) * kRowPitch;
  }

  std::string draw() {
    draw_legend();  // first, since it says how high the picture is
    std::string legend;
    legend.swap(out_);
    draw_heading();
    draw_axis();
    for (std::size_t rank = 0; rank < trace_.ranks.size(); ++rank) draw_rank(rank);
    return opening() + out_ + legend + "</svg>\n";
  }

 private:
  double x(double time) const { return left_ + (time - summary_.start) / duration_ * chart_width_; }

  // So wide that the narrowest pass can hold the longest micro batch number with its letter.
  double natural_width() const {
    double shortest = duration_;
    int largest = 0;
    for (const TraceRank& rank : trace_.ranks) {
      for (const TraceSpan& span : rank.spans) {
        if (!is_pass(span.instruction.opcode) || span.end <= span.start) continue;
        shortest = std::min(shortest, span.end - span.start);
        largest = std::max(largest, span.instruction.micro_batch.value);
      }
    }
    const double box = text_width(std::to_string(largest) + "W", kFontSize) + 4.0;
    const double chart = box * duration_ / shortest;
    return std::clamp(left_ + chart + kColumnsWidth + kMargin, kLeastWidth, kMostWidth);
  }

  double width() const { return left_ + chart_width_ + kColumnsWidth + kMargin; }

  std::string opening() const {
    const std::string w = pixels(width());
    const std::string h = pixels(height_);
    return "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"" + w + "\" height=\"" + h +
           "\" viewBox=\"0 0 " + w + ' ' + h +
           "\" font-family=\"Helvetica, Arial, 'DejaVu Sans', sans-serif\" font-size=\"" +
           pixels(kFontSize) + "\">\n<title>" + escaped(trace_.title) +
           "</title>\n"
           "<defs>\n"
           "<pattern id=\"hatched\" width=\"4\" height=\"4\" patternUnits=\"userSpaceOnUse\" "
           "patternTransform=\"rotate(45)\"><rect width=\"2\" height=\"4\" fill=\"#000\" "
           "fill-opacity=\"0.62\"/></pattern>\n"
           "<pattern id=\"dotted\" width=\"5\" height=\"5\" patternUnits=\"userSpaceOnUse\">"
           "<rect x=\"1\" y=\"1\" width=\"2.2\" height=\"2.2\" fill=\"#fff\" "
           "fill-opacity=\"0.95\"/></pattern>\n"
           "</defs>\n<rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n";
  }

  void rect(double left, double top, double w, double h, std::string_view fill,
            std::string_view more = "") {
    out_.append("<rect x=\"" + pixels(left) + "\" y=\"" + pixels(top) + "\" width=\"" + pixels(w) +
                "\" height=\"" + pixels(h) + "\" fill=\"");
    out_.append(fill).append("\"").append(more).append("/>\n");
  }

  void line(double x1, double y1, double x2, double y2, std::string_view stroke, double thickness) {
    out_.append("<path d=\"M" + pixels(x1) + ' ' + pixels(y1) + 'L' + pixels(x2) + ' ' +
                pixels(y2) + "\" stroke=\"");
    out_.append(stroke).append("\" stroke-width=\"" + pixels(thickness) + "\"/>\n");
  }

  void text(double left, double baseline, std::string_view words, std::string_view more = "") {
    out_.append("<text x=\"" + pixels(left) + "\" y=\"" + pixels(baseline) + '"');
    out_.append(more).append(">").append(escaped(words)).append("</text>\n");
  }

  void draw_heading() {
    text(kMargin, 20.0, trace_.title, " font-size=\"14\" font-weight=\"bold\"");
    text(kMargin, 37.0,
         "makespan " + number(summary_.makespan) + ", bubble " +
             number(100.0 * summary_.bubble_ratio(), 3) + " % of the busy time",
         " fill=\"#444\"");
    const std::string right = " text-anchor=\"end\" fill=\"#444\"";
    text(left_ + chart_width_ + 48.0, kHeadingHeight - 6.0, "idle", right);
    text(left_ + chart_width_ + kColumnsWidth, kHeadingHeight - 6.0, "peak", right);
  }

  void draw_axis() {
    const double distance = tick_distance(duration_, std::max(chart_width_ / 70.0, 2.0));
    for (int i = 0; i * distance <= duration_ * (1.0 + 1e-9); ++i) {
      const double at = x(summary_.start + i * distance);
      line(at, kHeadingHeight, at, rows_end_ + 3.0, "#e2e2e2", 1.0);
      text(at, rows_end_ + 15.0, number(i * distance), " text-anchor=\"middle\" fill=\"#444\"");
    }
    text(kMargin, rows_end_ + 15.0, "time", " fill=\"#444\"");
  }

  void draw_rank(std::size_t index) {
    const TraceRank& rank = trace_.ranks[index];
    const TraceSummary::Rank& summary = summary_.ranks[index];
    const double top = kHeadingHeight + static_cast<double>(index) * kRowPitch;
    text(kMargin, top + kBoxHeight / 2.0 + 4.0, rank.name);
    draw_idle(left_, top, x(summary_.start + summary_.makespan) - left_, kBoxHeight);
    double occupied_to = summary_.start;  // by passes that began earlier
    for (std::size_t i = 0; i < rank.spans.size(); ++i) {
      const TraceSpan& span = rank.spans[i];
      if (lane(span.instruction.opcode) == Lane::kComm) draw_message(span, top);
      if (lane(span.instruction.opcode) != Lane::kCompute || span.end <= span.start) continue;
      const bool lower = span.start < occupied_to - 1e-9 * duration_;
      const TraceSpan* beside = lower ? nullptr : overlapping_next(rank.spans, i);
      const double height = lower || beside != nullptr ? kBoxHeight / 2.0 : kBoxHeight;
      if (beside != nullptr) {  // the rank is busy until the longer one ends
        const double busy_to = std::max(span.end, beside->end);
        rect(x(span.start), top, x(busy_to) - x(span.start), kBoxHeight, "#fff");
      }
      draw_box(span, lower ? top + height : top, height);
      occupied_to = std::max(occupied_to, span.end);
    }
    const std::string right = " text-anchor=\"end\"";
    const double idle = summary_.makespan > 0.0 ? 100.0 * summary.idle / summary_.makespan : 0.0;
    text(left_ + chart_width_ + 48.0, top + 17.0, number(idle, 3) + " %", right);
    text(left_ + chart_width_ + kColumnsWidth, top + 17.0, std::to_string(summary.peak_activations),
         right);
  }

  // An empty row with a line along its middle, unlike the palest of boxes.
  void draw_idle(double left, double top, double w, double height) {
    rect(left, top, w, height, "#f1f1f1");
    line(left, top + height / 2.0, left + w, top + height / 2.0, "#b4b4b4", 1.0);
  }

  // The next pass if it begins before this one ends.
  const TraceSpan* overlapping_next(const std::vector<TraceSpan>& spans, std::size_t i) const {
    for (std::size_t next = i + 1; next < spans.size(); ++next) {
      if (lane(spans[next].instruction.opcode) != Lane::kCompute) continue;
      return spans[next].start < spans[i].end - 1e-9 * duration_ ? &spans[next] : nullptr;
    }
    return nullptr;
  }

  void draw_box(const TraceSpan& span, double top, double height) {
    const Instruction& instruction = span.instruction;
    const PassStyle* style = style_of(instruction.opcode);
    const Colour colour = style == nullptr
                              ? kOptimizerColour
                              : shade(style->colour, instruction.chunk.value, num_chunks_);
    const double left = x(span.start);
    const double w = x(span.end) - left;
    // Boxes too narrow for an outline would be nothing but outline.
    const double outline = std::min(0.8, w / 6.0);
    rect(left, top, w, height, to_hex(colour),
         " stroke=\"#fff\" stroke-width=\"" + pixels(outline) + '"');
    const double band = style == nullptr ? 0.0 : std::min(kBandHeight, height / 4.0);
    if (style != nullptr) draw_band(style->band, left, top + height, w, outline, band);
    std::string number_of;
    if (instruction.micro_batch != MicroBatchId{}) {
      number_of = std::to_string(instruction.micro_batch.value);
    }
    const std::string letter(1, letter_of(instruction.opcode));
    // The letter only where it leaves the number its size.
    const bool fits = text_width(letter + number_of, kFontSize) <= w - 2.0;
    const std::string label = fits || number_of.empty() ? letter + number_of : number_of;
    const double font = std::min({kFontSize, (w - 2.0) / text_width(label, 1.0), height * 0.62});
    if (font < kSmallestFont) return;
    const double middle = top + (height - band) / 2.0;
    text(left + w / 2.0, middle + font * 0.36, label,
         " text-anchor=\"middle\" font-size=\"" + pixels(font) + "\" fill=\"" +
             (is_dark(colour) ? "#fff" : "#000") + '"');
  }

  void draw_band(Band band, double left, double bottom, double w, double outline, double height) {
    if (band == Band::kNone || w <= 2.0 * outline) return;
    const std::string_view fill = band == Band::kHatched  ? "url(#hatched)"
                                  : band == Band::kDotted ? "url(#dotted)"
                                                          : "#000";
    const std::string_view more = band == Band::kSolid ? " fill-opacity=\"0.62\"" : "";
    rect(left + outline, bottom - outline - height, w - 2.0 * outline, height, fill, more);
  }

  void draw_message(const TraceSpan& span, double top) {
    const Opcode opcode = span.instruction.opcode;
    const bool send = is_send(opcode);
    if (!send && !is_receive(opcode)) return;
    const bool gradient = opcode == Opcode::kSendGrad || opcode == Opcode::kRecvGrad;
    const std::string_view colour = gradient ? kGradientColour : kActivationColour;
    const double row = top + kBoxHeight + 1.0 + (gradient ? kMarksHeight / 2.0 : 0.0);
    if (send) {
      line(x(span.start), row, x(span.start), row + 3.5, colour, 1.4);
    } else if (span.end > span.start) {
      line(x(span.start), row + 1.75, x(span.end), row + 1.75, colour, 0.8);
    }
  }

  // Begins a new line where the next entry would not fit.
  double legend_entry(double swatch, std::string_view words) {
    const double needed = swatch + 6.0 + text_width(words, kFontSize) + 12.0;
    if (legend_x_ > kMargin && legend_x_ + needed > width() - kMargin) {
      legend_x_ = kMargin;
      legend_y_ += kLegendLine;
    }
    const double left = legend_x_;
    text(left + swatch + 6.0, legend_y_ + 12.0, words);
    legend_x_ += needed;
    return left;
  }

  void draw_legend() {
    legend_x_ = kMargin;
    legend_y_ = rows_end_ + kAxisHeight;
    for (const PassStyle& style : kPassStyles) {
      if (!opcodes_.contains(style.opcode)) continue;
      const std::string words =
          std::string(1, letter_of(style.opcode)) + ' ' + std::string(style.name);
      const double swatch = 22.0;
      const double left = legend_entry(swatch, words);
      rect(left, legend_y_, swatch, 15.0, to_hex(style.colour));
      draw_band(style.band, left, legend_y_ + 15.0, swatch, 0.0, kBandHeight);
    }
    if (num_chunks_ > 1) {
      const double part = 14.0;
      const double left = legend_entry(part * num_chunks_, "chunks of a rank, first to last");
      for (int chunk = 0; chunk < num_chunks_; ++chunk) {
        rect(left + part * chunk, legend_y_, part, 15.0,
             to_hex(shade(kPassStyles[0].colour, chunk, num_chunks_)));
      }
    }
    draw_idle(legend_entry(22.0, "idle"), legend_y_, 22.0, 15.0);
    draw_legend_of_marks();
    height_ = legend_y_ + kLegendLine + 6.0;
  }

  void draw_legend_of_marks() {
    const auto entry = [&](Opcode send, Opcode recv, std::string_view colour,
                           std::string_view words) {
      if (!opcodes_.contains(send) && !opcodes_.contains(recv)) return;
      const double left = legend_entry(18.0, words);
      line(left + 2.0, legend_y_ + 5.5, left + 2.0, legend_y_ + 9.5, colour, 1.4);
      line(left + 6.0, legend_y_ + 7.5, left + 18.0, legend_y_ + 7.5, colour, 0.8);
    };
    entry(Opcode::kSendActivation, Opcode::kRecvActivation, kActivationColour,
          "activation sent, waited for");
    entry(Opcode::kSendGrad, Opcode::kRecvGrad, kGradientColour, "gradient sent, waited for");
  }

  const Trace& trace_;
  TraceSummary summary_;
  int num_chunks_;
  std::set<Opcode> opcodes_;
  double label_width_ = 0.0;
  double left_ = 0.0;      // where time begins
  double duration_ = 0.0;  // of the whole trace, never 0
  double chart_width_ = 0.0;
  double rows_end_ = 0.0;
  double legend_x_ = 0.0;
  double legend_y_ = 0.0;
  double height_ = 0.0;
  std::string out_;
};

}  // namespace

std::string to_svg(const Trace& trace, const SvgOptions& options) {
  if (!(options.width >= 0.0 && options.width <= kLargestWidth)) {
    throw ScheduleError("[schedule::svg] width is " + number(options.width) + "; expected 0 to " +
                        number(kLargestWidth) + " pixels, 0 for as wide as needed");
  }
  return Picture(trace, options).draw();
}

}  // namespace penstock::schedule
