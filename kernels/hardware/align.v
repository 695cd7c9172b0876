// What it takes to add numbers that have exponents of their own.

// The sum of TERMS magnitudes term * 2^exponent, their signs apart, as one integer times
// 2^(maximum - GUARD). Every term is shifted right by its distance from the largest exponent; what
// falls below 2^(maximum - GUARD) is dropped, so each term comes out less than that too small. A term
// of zero must come with exponent zero, or its exponent would push others out of the window.
module aligned_sum #(
    parameter TERMS = 32,
    parameter WIDTH = 16,
    parameter EXPONENT = 9,
    parameter GUARD = 8,
    parameter OUT = WIDTH + GUARD + 1 + $clog2(TERMS)
) (
    input [TERMS*WIDTH-1:0] terms,
    input [TERMS-1:0] negative,
    input [TERMS*EXPONENT-1:0] exponents,
    output [OUT-1:0] sum,
    output [EXPONENT-1:0] maximum
);
  localparam WINDOW = WIDTH + GUARD;
  wire [TERMS*WINDOW-1:0] rows;

  // [align]
  maximum_tree #(.TERMS(TERMS), .WIDTH(EXPONENT)) largest (
      .terms(exponents),
      .maximum(maximum)
  );

  genvar i;
  generate
    for (i = 0; i < TERMS; i = i + 1) begin : lane
      wire [WINDOW-1:0] aligned;
      align_term #(.WIDTH(WIDTH), .EXPONENT(EXPONENT), .GUARD(GUARD)) align (
          .term(terms[i*WIDTH+:WIDTH]),
          .exponent(exponents[i*EXPONENT+:EXPONENT]),
          .maximum(maximum),
          .aligned(aligned)
      );
      apply_sign #(.WIDTH(WINDOW)) sign (
          .negative(negative[i]),
          .magnitude(aligned),
          .row(rows[i*WINDOW+:WINDOW])
      );
    end
  endgenerate

  sum_magnitudes #(.TERMS(TERMS), .WIDTH(WINDOW)) tree (
      .low(rows),
      .high({TERMS{1'b0}}),
      .negative(negative),
      .total(sum)
  );
  // [/align]
endmodule

// The exact sum of TERMS magnitudes term * 2^exponent, for exponents of 0 … RANGE: each is shifted to its
// place in one fixed-point number. No largest exponent is looked for, and nothing is lost.
module shifted_sum #(
    parameter TERMS = 32,
    parameter WIDTH = 4,
    parameter EXPONENT = 3,
    parameter RANGE = 4,
    parameter OUT = WIDTH + RANGE + 1 + $clog2(TERMS)
) (
    input [TERMS*WIDTH-1:0] terms,
    input [TERMS-1:0] negative,
    input [TERMS*EXPONENT-1:0] exponents,
    output [OUT-1:0] sum
);
  localparam WINDOW = WIDTH + RANGE;
  wire [TERMS*WINDOW-1:0] rows;

  genvar i;
  generate
    for (i = 0; i < TERMS; i = i + 1) begin : lane
      wire [WINDOW-1:0] shifted;
      shift_term #(.WIDTH(WIDTH), .EXPONENT(EXPONENT), .RANGE(RANGE)) shift (
          .term(terms[i*WIDTH+:WIDTH]),
          .exponent(exponents[i*EXPONENT+:EXPONENT]),
          .shifted(shifted)
      );
      apply_sign #(.WIDTH(WINDOW)) sign (
          .negative(negative[i]),
          .magnitude(shifted),
          .row(rows[i*WINDOW+:WINDOW])
      );
    end
  endgenerate

  sum_magnitudes #(.TERMS(TERMS), .WIDTH(WINDOW)) tree (
      .low(rows),
      .high({TERMS{1'b0}}),
      .negative(negative),
      .total(sum)
  );
endmodule

(* keep_hierarchy *)
module align_term #(
    parameter WIDTH = 16,
    parameter EXPONENT = 9,
    parameter GUARD = 0,
    parameter SIGNED = 0
) (
    input [WIDTH-1:0] term,
    input [EXPONENT-1:0] exponent,
    input [EXPONENT-1:0] maximum,
    output [WIDTH+GUARD-1:0] aligned
);
  wire [EXPONENT-1:0] distance = maximum - exponent;
  wire [WIDTH+GUARD-1:0] extended = term << GUARD;

  generate
    if (SIGNED) begin : toward_minus_infinity
      assign aligned = $signed(extended) >>> distance;
    end else begin : toward_zero
      assign aligned = extended >> distance;
    end
  endgenerate
endmodule

(* keep_hierarchy *)
module shift_term #(
    parameter WIDTH = 4,
    parameter EXPONENT = 3,
    parameter RANGE = 4
) (
    input [WIDTH-1:0] term,
    input [EXPONENT-1:0] exponent,
    output [WIDTH+RANGE-1:0] shifted
);
  assign shifted = term << exponent;
endmodule

// The largest of TERMS unsigned numbers.
module maximum_tree #(
    parameter TERMS = 32,
    parameter WIDTH = 9
) (
    input [TERMS*WIDTH-1:0] terms,
    output [WIDTH-1:0] maximum
);
  localparam LEFT = TERMS / 2;
  localparam RIGHT = TERMS - LEFT;

  generate
    if (TERMS == 1) begin : leaf
      assign maximum = terms;
    end else begin : node
      wire [WIDTH-1:0] left;
      wire [WIDTH-1:0] right;
      maximum_tree #(.TERMS(LEFT), .WIDTH(WIDTH)) left_half (
          .terms(terms[LEFT*WIDTH-1:0]),
          .maximum(left)
      );
      maximum_tree #(.TERMS(RIGHT), .WIDTH(WIDTH)) right_half (
          .terms(terms[TERMS*WIDTH-1:LEFT*WIDTH]),
          .maximum(right)
      );
      maximum_of_two #(.WIDTH(WIDTH)) larger (
          .a(left),
          .b(right),
          .maximum(maximum)
      );
    end
  endgenerate
endmodule

(* keep_hierarchy *)
module maximum_of_two #(
    parameter WIDTH = 9
) (
    input [WIDTH-1:0] a,
    input [WIDTH-1:0] b,
    output [WIDTH-1:0] maximum
);
  assign maximum = a > b ? a : b;
endmodule
