// The way out of every unit whose result is a float: the sums of its blocks become one FP32 number, which
// is added to the FP32 accumulator. One block needs no alignment, only the conversion: that is the
// point of a shared scale.

(* keep_hierarchy *)
module finish #(
    parameter BLOCKS = 1,
    parameter WIDTH = 21,
    parameter EXPONENT = 9,
    parameter GUARD = 3,
    parameter OFFSET = 0
) (
    input [BLOCKS*WIDTH-1:0] sums,
    input [BLOCKS*EXPONENT-1:0] exponents,
    input nan,
    input [31:0] acc,
    output [31:0] result
);
  wire [31:0] fp32;

  genvar i;
  generate
    if (BLOCKS == 1) begin : one
      to_fp32 #(.WIDTH(WIDTH), .EXPONENT(EXPONENT), .OFFSET(OFFSET)) convert (
          .significand(sums),
          .exponent(exponents),
          .nan(nan),
          .fp32(fp32)
      );
    end else begin : many
      localparam WINDOW = WIDTH + GUARD;
      localparam TOTAL = WINDOW + $clog2(BLOCKS);
      wire [BLOCKS*EXPONENT-1:0] effective;
      wire [BLOCKS*WINDOW-1:0] terms;
      wire [TOTAL-1:0] sum;
      wire [EXPONENT-1:0] maximum;

      maximum_tree #(.TERMS(BLOCKS), .WIDTH(EXPONENT)) largest (
          .terms(effective),
          .maximum(maximum)
      );
      for (i = 0; i < BLOCKS; i = i + 1) begin : block
        assign effective[i*EXPONENT+:EXPONENT] =
            |sums[i*WIDTH+:WIDTH] ? exponents[i*EXPONENT+:EXPONENT] : {EXPONENT{1'b0}};
        align_term #(.WIDTH(WIDTH), .EXPONENT(EXPONENT), .GUARD(GUARD), .SIGNED(1)) align (
            .term(sums[i*WIDTH+:WIDTH]),
            .exponent(effective[i*EXPONENT+:EXPONENT]),
            .maximum(maximum),
            .aligned(terms[i*WINDOW+:WINDOW])
        );
      end
      sum_signed #(.TERMS(BLOCKS), .WIDTH(WINDOW)) add (
          .terms(terms),
          .total(sum)
      );
      to_fp32 #(.WIDTH(TOTAL), .EXPONENT(EXPONENT), .OFFSET(OFFSET + GUARD)) convert (
          .significand(sum),
          .exponent(maximum),
          .nan(nan),
          .fp32(fp32)
      );
    end
  endgenerate

  add_fp32 accumulate (
      .a(acc),
      .b(fp32),
      .sum(result)
  );
endmodule

// The exponent that a block's result carries: the sum of its two E8M0 scales, NaN if either is.
module add_scales (
    input [7:0] a,
    input [7:0] b,
    output [8:0] exponent,
    output nan
);
  assign exponent = a + b;
  assign nan = (&a) | (&b);
endmodule

// significand * 2^(exponent - OFFSET) as FP32, rounded to nearest, ties to even.
//
// A result below the smallest normal number becomes +0. A result beyond the range, or one marked
// as NaN, becomes the quiet NaN: every unit has this one way out, so none is cheaper for its
// special cases.
(* keep_hierarchy *)
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

// The accumulator's adder: the sum of two FP32 numbers, rounded to nearest, ties to even. Subnormal
// operands and results count as zero.
(* keep_hierarchy *)
module add_fp32 (
    input [31:0] a,
    input [31:0] b,
    output [31:0] sum
);
  wire swap = b[30:0] > a[30:0];
  wire [31:0] larger = swap ? b : a;
  wire [31:0] smaller = swap ? a : b;
  wire larger_normal = |larger[30:23];
  wire smaller_normal = |smaller[30:23];
  wire [23:0] larger_significand = {larger_normal, larger[22:0] & {23{larger_normal}}};
  wire [23:0] smaller_significand = {smaller_normal, smaller[22:0] & {23{smaller_normal}}};

  // guard, round and sticky bits are enough to round the exact sum
  wire [26:0] aligned;
  shift_right_sticky align (
      .value({smaller_significand, 3'd0}),
      .distance(larger[30:23] - smaller[30:23]),
      .shifted(aligned)
  );

  wire subtract = larger[31] ^ smaller[31];
  wire [27:0] total = subtract ? {1'b0, larger_significand, 3'd0} - aligned
      : {1'b0, larger_significand, 3'd0} + aligned;
  wire [27:0] normalized;
  wire [4:0] leading_zeros;

  normalize #(.WIDTH(28)) shift (
      .value(total),
      .normalized(normalized),
      .leading_zeros(leading_zeros)
  );

  wire signed [11:0] exponent = $signed({1'b0, larger[30:23]}) + 1 - $signed({1'b0, leading_zeros});

  round_fp32 #(.WIDTH(28)) round (
      .negative(larger[31]),
      .normalized(normalized),
      .exponent(exponent),
      .nan((&a[30:23]) | (&b[30:23])),
      .fp32(sum)
  );
endmodule

// A right shift whose last bit remembers whether anything but zeros was shifted out.
module shift_right_sticky (
    input [26:0] value,
    input [7:0] distance,
    output [26:0] shifted
);
  reg [26:0] kept;
  reg sticky;
  integer step;

  always @* begin
    kept = value;
    sticky = 1'b0;
    for (step = 4; step >= 0; step = step - 1) begin
      if (distance[step]) begin
        sticky = sticky | (|(kept & ((27'd1 << (1 << step)) - 27'd1)));
        kept = kept >> (1 << step);
      end
    end
    if (|distance[7:5]) begin
      sticky = |value;
      kept = 27'd0;
    end
  end

  assign shifted = {kept[26:1], kept[0] | sticky};
endmodule
