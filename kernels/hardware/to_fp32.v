// significand * 2^(exponent - OFFSET) as FP32, rounded to nearest, ties to even.
//
// A result below the smallest normal number becomes +0. A result beyond the range, or one marked
// as NaN, becomes the quiet NaN: every unit has this one way out, so none is cheaper for its
// special cases.

module to_fp32 #(
    parameter WIDTH = 30,
    parameter EXPONENT = 9,
    parameter OFFSET = 0
) (
    input signed [WIDTH-1:0] significand,
    input [EXPONENT-1:0] exponent,
    input nan,
    output [31:0] fp32
);
  wire negative = significand[WIDTH-1];
  wire [WIDTH-1:0] magnitude = negative ? -significand : significand;
  wire [WIDTH-1:0] normalized;
  wire [$clog2(WIDTH+1)-1:0] leading_zeros;

  normalize #(.WIDTH(WIDTH)) shift (
      .value(magnitude),
      .normalized(normalized),
      .leading_zeros(leading_zeros)
  );

  wire signed [11:0] unrounded_exponent = $signed({1'b0, exponent}) - $signed({1'b0, leading_zeros})
      + (WIDTH - 1 + 127 - OFFSET);

  round_fp32 #(.WIDTH(WIDTH)) round (
      .negative(negative),
      .normalized(normalized),
      .exponent(unrounded_exponent),
      .nan(nan),
      .fp32(fp32)
  );
endmodule

// Shift left until the leading one is at the top: halves of the remaining width, largest first.
module normalize #(
    parameter WIDTH = 30
) (
    input [WIDTH-1:0] value,
    output reg [WIDTH-1:0] normalized,
    output reg [$clog2(WIDTH+1)-1:0] leading_zeros
);
  localparam STEPS = $clog2(WIDTH);
  integer step;

  always @* begin
    normalized = value;
    leading_zeros = 0;
    for (step = STEPS - 1; step >= 0; step = step - 1) begin
      if (normalized >> (WIDTH - (1 << step)) == 0) begin
        normalized = normalized << (1 << step);
        leading_zeros = leading_zeros + (1 << step);
      end
    end
  end
endmodule

// The last step of every float result: a normalized significand (leading one at the top, or zero)
// and a biased exponent that may lie outside FP32's range.
module round_fp32 #(
    parameter WIDTH = 30
) (
    input negative,
    input [WIDTH-1:0] normalized,
    input signed [11:0] exponent,
    input nan,
    output [31:0] fp32
);
  wire [23:0] kept;
  wire round_up;

  generate
    if (WIDTH <= 24) begin : exact
      assign kept = {normalized, {24 - WIDTH{1'b0}}};
      assign round_up = 1'b0;
    end else if (WIDTH == 25) begin : tie_or_exact
      assign kept = normalized[24:1];
      assign round_up = normalized[0] & normalized[1];
    end else begin : nearest
      assign kept = normalized[WIDTH-1-:24];
      assign round_up = normalized[WIDTH-25] & (normalized[WIDTH-24] | (|normalized[WIDTH-26:0]));
    end
  endgenerate

  wire [24:0] rounded = kept + round_up;
  wire signed [11:0] field = exponent + $signed({1'b0, rounded[24]});
  wire [22:0] fraction = rounded[24] ? 23'd0 : rounded[22:0];
  wire zero = ~normalized[WIDTH-1] | (field <= 0);

  assign fp32 = (nan | (~zero & (field >= 255))) ? 32'h7fc00000
      : zero ? 32'd0
      : {negative, field[7:0], fraction};
endmodule
