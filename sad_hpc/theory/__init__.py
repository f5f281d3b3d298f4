"""The paper's theory as tools: Theorems 1 and 2, Assumption 2 and Proposition 1."""
