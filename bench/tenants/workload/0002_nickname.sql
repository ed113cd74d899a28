-- The migration that the benchmark times.
ALTER TABLE :"schema".devices ADD COLUMN nickname text;
